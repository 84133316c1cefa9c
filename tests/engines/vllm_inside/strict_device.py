"""A pretend accelerator: real numbers in host memory, strict about mixing host and device, counting what costs.

Tensors live on torch's private-use device. Operations between host and device tensors raise as on CUDA, or count as
the synchronisation that CUDA would silently make of them. A Triton launch runs interpreted and counts once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any
from unittest import mock

import torch
from tests.engines.vllm_inside.paged_memory import interpreted_kernel
from torch.utils import backend_registration
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

backend_registration._setup_privateuseone_for_python_backend()
DEVICE = torch.device("privateuseone:0")
aten = torch.ops.aten
INDEXING = (aten.index, aten.index_put, aten.index_put_, aten._index_put_impl_)
MEMORY = (aten.empty, aten.empty_like, aten.empty_strided, aten.new_empty, aten.new_empty_strided)


class DeviceTensor(torch.Tensor):
    """``inner`` holds the numbers."""

    inner: torch.Tensor

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> DeviceTensor:
        made = torch.Tensor._make_wrapper_subclass(
            cls,
            inner.size(),
            strides=inner.stride(),
            storage_offset=inner.storage_offset(),
            dtype=inner.dtype,
            device=DEVICE,
        )
        made.inner = inner
        return made  # type: ignore[no-any-return]

    def data_ptr(self) -> int:
        return int(self.inner.data_ptr())

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise RuntimeError(f"{func} on the device outside of its scope")


def to_device(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor of the device over the same memory: for what the engine made."""
    return DeviceTensor(tensor)


def to_host(tensor: torch.Tensor) -> torch.Tensor:
    """The numbers behind a tensor of the device: for assertions."""
    return tensor.inner if isinstance(tensor, DeviceTensor) else tensor


class Costs(TorchDispatchMode):
    """``counts`` of synchronisations, copies to the device (with their bytes), copies to the host and launches."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()
        self._pinned: set[int] = set()

    def pinned(self, size: int) -> torch.Tensor:
        memory = torch.empty(size, dtype=torch.uint8)
        self._pinned.add(memory.untyped_storage().data_ptr())
        return memory

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        flat, _ = tree_flatten((args, kwargs))
        device = kwargs.get("device")
        to = None if device is None else torch.device(device)
        if not any(isinstance(part, DeviceTensor) for part in flat) and (to is None or to.type != DEVICE.type):
            return func(*args, **kwargs)
        packet = func.overloadpacket
        if packet is aten._local_scalar_dense:
            self.counts["synchronisations"] += 1
            return func(*tree_map(_inner, args))
        if packet is aten._to_copy:
            return self._to_copy(func, args, kwargs, to)
        if packet is aten.copy_:
            self._count_copy(args[0], args[1], is_async=bool(args[2]) if len(args) > 2 else False)
            func(_inner(args[0]), _inner(args[1]), *args[2:])
            return args[0]
        self._check_one_device(func, flat, args)
        if not func.is_view and packet not in MEMORY:
            self.counts["launches"] += 1
        kwargs.pop("device", None)
        kwargs.pop("pin_memory", None)
        out = func(*tree_map(_inner, args), **tree_map(_inner, kwargs))
        if func._schema.is_mutable and args and isinstance(args[0], DeviceTensor) and out is args[0].inner:
            return args[0]
        return tree_map(lambda part: DeviceTensor(part) if isinstance(part, torch.Tensor) else part, out)

    def _to_copy(self, func: Any, args: Any, kwargs: dict[str, Any], to: torch.device | None) -> Any:
        kwargs.pop("device", None)
        is_async = bool(kwargs.get("non_blocking"))
        target_is_host = to is not None and to.type == "cpu"
        out = func(_inner(args[0]), **{**kwargs, "non_blocking": False})
        made = out if target_is_host else DeviceTensor(out)
        self._count_copy(made, args[0], is_async=is_async)
        return made

    def _count_copy(self, target: torch.Tensor, source: torch.Tensor, *, is_async: bool) -> None:
        target_is_device, source_is_device = isinstance(target, DeviceTensor), isinstance(source, DeviceTensor)
        if target_is_device and source_is_device:
            self.counts["launches"] += 1
            return
        self.counts["copies to the device" if target_is_device else "copies to the host"] += 1
        host = source if target_is_device else target
        if not is_async or host.untyped_storage().data_ptr() not in self._pinned:
            self.counts["synchronisations"] += 1

    def _check_one_device(self, func: Any, flat: list[Any], args: Any) -> None:
        host = [part for part in flat if isinstance(part, torch.Tensor) and not isinstance(part, DeviceTensor)]
        host = [part for part in host if part.dim()]
        if not host:
            return
        values = args[2] if len(args) > 2 and isinstance(args[2], torch.Tensor) else None
        if func.overloadpacket in INDEXING and (values is None or isinstance(values, DeviceTensor) or not values.dim()):
            self.counts["synchronisations"] += 1  # CUDA copies the index before it continues
            self.counts["copies to the device"] += 1
            return
        raise RuntimeError(f"{func}: expected all tensors on one device, found host tensors of {host[0].shape}")


def _inner(part: Any) -> Any:
    return part.inner if isinstance(part, DeviceTensor) else part


class PretendStreams:
    """Streams of a device that does everything at once, so only its pinned memory matters here."""

    def __init__(self, costs: Costs) -> None:
        self.pinned = costs.pinned

    def wait_for_engine(self) -> None: ...

    def engine_waits(self, event: Any) -> None: ...

    def on_ours(self) -> AbstractContextManager[Any]:
        return nullcontext()

    def record(self) -> Any:
        return Done()


class Done:
    def query(self) -> bool:
        return True


@contextmanager
def strict_device() -> Iterator[Costs]:
    """Inside, tensors can be on the device, and the move kernel runs interpreted and counts as one launch."""
    kernel = interpreted_kernel()
    costs = Costs()
    theirs = kernel.launch

    def launch(grid: tuple[int, int], arguments: tuple[Any, ...], compiled_for: dict[str, Any]) -> None:
        for part in arguments:
            if isinstance(part, torch.Tensor) and not isinstance(part, DeviceTensor):
                raise RuntimeError("a kernel was given a host tensor")
        costs.counts["launches"] += 1
        theirs(grid, tree_map(_inner, arguments), compiled_for)

    def load_target(target: str) -> Callable[..., Any]:
        assert target == "semblend.kv.move_kernel:KernelMove"
        made: Callable[..., Any] = kernel.KernelMove
        return made

    with (
        mock.patch.object(kernel, "launch", launch),
        mock.patch("semblend.kv.move.load_target", load_target),
        costs,
    ):
        yield costs
