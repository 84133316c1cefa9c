"""The half in the worker's process: whole pages of donors, copied to host memory and back. It decides nothing.

The leader bounds the host memory: it commands what is saved and what is dropped. Pages are kept in the engine's own,
opaque format, so they are not in a ``DonorStore``.
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
    """``pool`` is the engine's cache tensor, one page per index of its first dimension."""

    def __init__(self, link: Link, border: Border) -> None:
        self._link = link
        self._border = border
        self._pool: Any = None
        self._held: dict[str, Any] = {}

    def __len__(self) -> int:
        return len(self._held)

    def register(self, pool: Any) -> None:
        """Before anything is served, test on the last page that pages are copied out and back unchanged."""
        self._pool = pool
        self._link.fault = self._border.call("self_test", "", self._self_test, "the self-test of its pages failed")

    def refuse(self, why: str) -> None:
        self._pool, self._link.fault = None, why

    def load(self, commands: StepCommands, stream: Any) -> None:
        """A load that fails is not contained: the engine counts these pages as computed, and a claim cannot be
        withdrawn here. A failed step is better than an answer over missing KV.
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
        """The engine reports a block without a page as -1, which would index the last page."""
        for place in places:
            if not 0 <= place < len(self._pool):
                raise IndexError(f"page {place} is not one of the {len(self._pool)} pages of the cache")
        return places

    def _self_test(self) -> str:
        """Compared as bytes: an untouched cache may hold anything, NaN included."""
        last = len(self._pool) - 1
        if last < 1:
            return "the cache has no page to test with"
        before = _to_host(self._pool[last])
        for pattern in (_inverted(before), before):
            _write(self._pool, last, pattern)
            if not bool((_bytes_of(_to_host(self._pool[last])) == _bytes_of(pattern)).all()):
                return "a page was not copied out and back unchanged"
        self._link.page_bytes, self._link.page_count = int(before.nbytes), len(self._pool)
        return ""


def _to_host(page: Any) -> Any:
    """A copy, because the engine overwrites the page."""
    return page.detach().to("cpu", copy=True) if hasattr(page, "detach") else page.copy()


def _write(pool: Any, place: int, page: Any) -> None:
    if hasattr(pool, "detach"):
        pool[place].copy_(page)
    else:
        pool[place] = page


def _bytes_of(page: Any) -> Any:
    if not hasattr(page, "detach"):
        return page.reshape(-1).view("u1")
    import torch  # noqa: PLC0415 - the page is a tensor, so it is installed

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
