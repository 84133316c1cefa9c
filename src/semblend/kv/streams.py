"""A device's streams and events as transfers use them, and memory that the device can reach from its side.

``DeviceStreams`` goes through torch's device-neutral interface. Tests put doubles in its place that record what waits
for what.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Protocol

import torch

from semblend.kv.arena import PinnedMemoryError


class Event(Protocol):
    """A point in a stream's work."""

    def query(self) -> bool:
        """Whether the work before it is done. Does not wait."""


class Streams(Protocol):
    """The engine's stream, one of ours beside it, and host memory both can read."""

    def wait_for_engine(self) -> None:
        """Our stream continues after the work that the engine's stream has been given so far."""

    def engine_waits(self, event: Event) -> None:
        """The engine's stream continues after ``event``; the host does not wait."""

    def on_ours(self) -> AbstractContextManager[Any]:
        """Work that is submitted inside goes to our stream."""

    def record(self) -> Event:
        """An event after the work that our stream has been given so far."""

    def pinned(self, size: int) -> torch.Tensor:
        """Bytes for one copy to the device. They may be dropped before the copy is done."""


class DeviceStreams:
    """The streams of one device."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._ours = torch.Stream(device=device)

    def wait_for_engine(self) -> None:
        self._ours.wait_stream(torch.accelerator.current_stream(self._device))

    def engine_waits(self, event: Event) -> None:
        torch.accelerator.current_stream(self._device).wait_event(event)

    def on_ours(self) -> AbstractContextManager[Any]:
        ours: AbstractContextManager[Any] = self._ours
        return ours

    def record(self) -> Event:
        event: Event = self._ours.record_event()
        return event

    def pinned(self, size: int) -> torch.Tensor:
        # From torch's own pool, which gives a buffer out again only after the copies from it are done.
        return torch.empty(size, dtype=torch.uint8, device="cpu", pin_memory=True)


def register_pinned(size: int) -> torch.Tensor:
    """Host memory of exactly ``size`` bytes which a CUDA or ROCm device reads and writes at its host address.

    Torch's own pinned memory comes in powers of two, which would waste up to half of an arena.
    """
    memory = torch.empty(size, dtype=torch.uint8, device="cpu")
    code = int(torch.cuda.cudart().cudaHostRegister(memory.data_ptr(), size, 0))
    if code:
        raise PinnedMemoryError(f"pinning {size} bytes of host memory failed with code {code}")
    return memory
