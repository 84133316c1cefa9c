"""The half beside the engine's cache: whole pages of donors, copied to host memory and back. It decides nothing.

Host memory is the leader's to bound: it orders what is saved and what is dropped.
"""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

from semblend.integration.trtllm.commands import LoadCommand, SaveCommand, StepCommands
from semblend.integration.trtllm.link import Loaded, Saved, SaveFailed

if TYPE_CHECKING:
    from semblend.integration.border import Border
    from semblend.integration.trtllm.link import Link


class WorkerHalf:
    """``pool`` is the engine's cache tensor, one page per place of its first dimension."""

    def __init__(self, link: Link, border: Border) -> None:
        self._link = link
        self._border = border
        self._pool: Any = None
        self._held: dict[str, Any] = {}

    def __len__(self) -> int:
        return len(self._held)

    def register(self, pool: Any) -> None:
        """Prove on the last page, before anything is served, that pages leave and return unchanged."""
        self._pool = pool
        self._link.fault = self._border.call("self_test", "", self._self_test, "the self-test of its pages failed")

    def refuse(self, why: str) -> None:
        self._pool, self._link.fault = None, why

    def load(self, commands: StepCommands, stream: Any) -> None:
        """A load that breaks is not contained: the engine counts these pages as computed, and nothing can take a
        promise back here. Better a failed step than an answer over a hole.
        """
        with _on(stream):
            for command in commands.loads:
                self._load(command)
        for donor_id in commands.drops:
            self._held.pop(donor_id, None)

    def save(self, commands: StepCommands, stream: Any) -> None:
        if commands.saves and stream is not None:
            stream.synchronize()
        for command in commands.saves:
            self._link.report(
                self._border.call("save", "", partial(self._save, command), SaveFailed(command.donor_id))  # type: ignore[arg-type]
            )

    def _load(self, command: LoadCommand) -> None:
        started = time.perf_counter()
        pages = self._held[command.donor_id][command.first_block : command.first_block + len(command.block_ids)]
        if len(pages) != len(command.block_ids):
            raise RuntimeError(
                f"donor {command.donor_id} holds {len(pages)} of {len(command.block_ids)} requested pages"
            )
        for place, page in zip(self._checked(command.block_ids), pages, strict=True):
            _write(self._pool, place, page)
        self._link.report(Loaded(command.request_id, (time.perf_counter() - started) * 1e3))

    def _save(self, command: SaveCommand) -> Saved:
        self._held[command.donor_id] = [_to_host(self._pool[place]) for place in self._checked(command.block_ids)]
        return Saved(command.donor_id)

    def _checked(self, places: tuple[int, ...]) -> tuple[int, ...]:
        """The engine reports a block without a page as -1, which an array would take for its last page."""
        for place in places:
            if not 0 <= place < len(self._pool):
                raise IndexError(f"page {place} is none of the {len(self._pool)} of the cache")
        return places

    def _self_test(self) -> str:
        """Compared as bytes: an untouched cache may hold anything, numbers that equal nothing included."""
        last = len(self._pool) - 1
        if last < 1:
            return "the cache has no page to test with"
        before = _to_host(self._pool[last])
        for pattern in (_inverted(before), before):
            _write(self._pool, last, pattern)
            if not bool((_bytes_of(_to_host(self._pool[last])) == _bytes_of(pattern)).all()):
                return "a page did not return as it left"
        self._link.page_bytes, self._link.page_count = int(before.nbytes), len(self._pool)
        return ""


def _to_host(page: Any) -> Any:
    """A copy, whatever the page is: the engine will write over it."""
    return page.detach().to("cpu", copy=True) if hasattr(page, "detach") else page.copy()


def _write(pool: Any, place: int, page: Any) -> None:
    if hasattr(pool, "detach"):
        pool[place].copy_(page)
    else:
        pool[place] = page


def _bytes_of(page: Any) -> Any:
    if not hasattr(page, "detach"):
        return page.reshape(-1).view("u1")
    import torch  # noqa: PLC0415 - a tensor came in, so it is there

    return page.reshape(-1).view(torch.uint8)


def _inverted(page: Any) -> Any:
    return (_bytes_of(page) ^ 255).view(page.dtype).reshape(page.shape)


def _on(stream: Any) -> AbstractContextManager[Any]:
    """Copies run on the stream of the forward pass that reads them."""
    if stream is None:
        return nullcontext()
    import torch  # noqa: PLC0415 - only an engine has streams

    context: AbstractContextManager[Any] = torch.cuda.stream(stream)
    return context
