"""Hooks on decoder layers: keeps their inputs and outputs of one forward pass and gives the inputs to later passes.

Inputs shaped like an output are replayed. Others are not: Transformers layers get cosines and sines of positions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch


class LayerReplay:
    def __init__(self, layers: Sequence[Any]) -> None:
        self._layers = layers
        self._inputs: list[list[torch.Tensor]] = [[] for _ in layers]
        self._outputs: list[list[torch.Tensor]] = [[] for _ in layers]
        self._errors: list[float] = []

    @contextmanager
    def recording(self) -> Iterator[None]:
        def before(at: int, inputs: list[torch.Tensor]) -> None:
            self._inputs[at] = [tensor.clone() for tensor in inputs]

        def after(at: int, outputs: list[torch.Tensor]) -> None:
            self._outputs[at] = [tensor.clone() for tensor in outputs]

        with self._hooked(before, after):
            yield

    @contextmanager
    def replaying(self) -> Iterator[None]:
        """Inputs are overwritten in place: kernels may write into them, so each pass gets them again."""
        self._errors = [0.0] * len(self._layers)

        def before(at: int, inputs: list[torch.Tensor]) -> None:
            shapes = {kept.shape for kept in self._outputs[at]}
            for tensor, kept in zip(inputs, self._inputs[at], strict=True):
                if kept.shape in shapes:
                    tensor.copy_(kept)

        def after(at: int, outputs: list[torch.Tensor]) -> None:
            pairs = zip(outputs, self._outputs[at], strict=True)
            self._errors[at] = max((_row_error(tensor, kept) for tensor, kept in pairs), default=0.0)

        with self._hooked(before, after):
            yield

    def output_errors(self) -> list[float]:
        """Of the last replay, by layer."""
        return self._errors

    @contextmanager
    def _hooked(
        self, before: Callable[[int, list[torch.Tensor]], None], after: Callable[[int, list[torch.Tensor]], None]
    ) -> Iterator[None]:
        handles = []
        for index, layer in enumerate(self._layers):

            def enter(_module: Any, arguments: Any, named: dict[str, Any], at: int = index) -> None:
                before(at, list(_floats((arguments, named))))

            def leave(_module: Any, _arguments: Any, outputs: Any, at: int = index) -> None:
                after(at, list(_floats(outputs)))

            handles.append(layer.register_forward_pre_hook(enter, with_kwargs=True))
            handles.append(layer.register_forward_hook(leave))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()


def _floats(nested: Any) -> Iterator[torch.Tensor]:
    if isinstance(nested, torch.Tensor):
        if nested.is_floating_point():
            yield nested
    elif isinstance(nested, dict):
        for value in nested.values():
            yield from _floats(value)
    elif isinstance(nested, list | tuple):
        for value in nested:
            yield from _floats(value)


def _row_error(found: torch.Tensor, kept: torch.Tensor) -> float:
    """Median over the tokens of the relative error."""
    rows = (found.float() - kept.float()).square().flatten(1).sum(dim=1)
    size = kept.float().square().flatten(1).sum(dim=1)
    return float((rows / size.clamp_min(torch.finfo(torch.float32).tiny)).sqrt().median())
