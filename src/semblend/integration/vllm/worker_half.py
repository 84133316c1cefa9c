"""The half beside the model: holds donor KV, fills claimed positions, copies finished prefills.

A load either fills every claimed position or is reported with its blocks, which the engine then computes itself.
"""

from __future__ import annotations

import logging
import time
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np
import torch

from semblend.contract import FaultContained, TokenRange
from semblend.integration.border import Border
from semblend.integration.core.load_check import complaint
from semblend.integration.core.selective_fill import Fill, Filled, fill
from semblend.integration.vllm.open_request import PagedRequest
from semblend.integration.vllm.orders import CaptureOrder, LoadOrder, LoadReport, StepNews, StepOrders, StudyOrder
from semblend.kv.rope import Rotation, rotate_keys

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from semblend.integration.vllm.attention_cache import AttentionCache
    from semblend.integration.vllm.sparse_forward import SparseForward
    from semblend.kv.donor_store import DonorStore


LONG_RUN_TOKENS: Final = 1000


class BrokenPromiseError(Exception):
    """A load that another rank, or the scheduler half, could not keep."""


class WorkerHalf:
    """One per rank. ``agree`` tells whether every rank of the group says yes; without a group it is the own answer."""

    def __init__(
        self,
        cache: AttentionCache,
        store: DonorStore,
        rotation: Rotation,
        sparse_forward: SparseForward | None,
        agree: Callable[[bool], bool],
        log: logging.Logger,
        *,
        ranks: int = 1,
    ) -> None:
        self._cache = cache
        self._store = store
        self._rotation = rotation
        self._sparse_forward = sparse_forward
        self._border = Border(self._note, log)
        self._faults: dict[str, str] = {}
        self._agree = agree
        self._is_alone = ranks == 1
        self._news = StepNews()
        self._invalid_blocks: set[int] = set()
        self._failed_studies: set[str] = set()  # their donors, until the scheduler half drops them
        self._released: set[str] = set()

    def load(self, orders: StepOrders) -> None:
        """Before the step's forward: make every promise true, or say which blocks it broke."""
        for order in orders.loads:
            report = self._load(order)
            if report is None:
                self._news.load_faults[order.request_id] = self._faults.pop(order.request_id, "unknown")
                self._invalid_blocks.update(order.block_ids[order.start // self._cache.block_tokens :])
            else:
                self._news.loaded[order.request_id] = report
        if orders.study is not None:
            self._study(orders.study)

    def save(self, orders: StepOrders) -> None:
        """After the step's loads and forward: let go of what is no longer wanted, copy what was ordered."""
        for donor_id in orders.drops:
            self._store.drop(donor_id)
            self._failed_studies.discard(donor_id)
        started = time.perf_counter()
        for order in orders.captures:
            if self._border.call("capture", order.request_id, partial(self._capture, order), False):
                self._news.captured_tokens += order.tokens
            else:
                self._news.capture_faults[order.donor_id] = self._faults.pop(order.request_id, "unknown")
            if order.release:
                self._released.add(order.request_id)
        self._released.update(orders.releases)
        self._news.capture_ms += (time.perf_counter() - started) * 1e3 if orders.captures else 0.0

    def take_invalid_blocks(self) -> set[int]:
        taken, self._invalid_blocks = self._invalid_blocks, set()
        return taken

    def take_released(self) -> set[str]:
        """Finished requests whose blocks may go now."""
        taken, self._released = self._released, set()
        return taken

    def take_news(self) -> StepNews | None:
        if self._news.is_empty:
            return None
        taken, self._news = self._news, StepNews()
        return taken

    def _note(self, fault: FaultContained) -> None:
        """The first fault of an order is its cause; those after it are consequences."""
        self._faults.setdefault(fault.request_id, f"{fault.stage}: {fault.error}")

    def _load(self, order: LoadOrder) -> LoadReport | None:
        """Rotate and write the runs, then compute the holes. All ranks do both, or none begins the forward."""
        started = time.perf_counter()
        written = self._border.call("write", order.request_id, partial(self._write_runs, order), False)
        if not self._agree(written):
            self._faults.setdefault(order.request_id, "write: another rank could not write the runs")
            return None
        loaded = time.perf_counter()
        filled: Filled | None
        if self._is_alone:
            filled = self._border.call("compute", order.request_id, partial(self._compute, order), None)
            if filled is None:
                return None
        else:
            # The other ranks are in the middle of the same forward: a fault here must end the engine, not pair our
            # next collective with their last one.
            filled = self._compute(order)
        done = time.perf_counter()
        return LoadReport(
            donor_ids=tuple(dict.fromkeys(run.donor_id for run in order.runs)),
            runs=len(order.runs),
            reused_tokens=sum(run.length for run in order.runs) - filled.chosen_tokens,
            computed_tokens=sum(len(hole) for hole in order.compute) + filled.chosen_tokens,
            load_ms=(loaded - started) * 1e3,
            compute_ms=(done - loaded) * 1e3,
            choose_ms=filled.choose_ms,
            selected_by=filled.policy,
            groups=filled.groups,
        )

    def _write_runs(self, order: LoadOrder) -> bool:
        if order.broken:
            raise BrokenPromiseError(order.broken)
        if order.choice is not None and not self._is_alone:
            raise BrokenPromiseError("ranks see different heads and would choose differently")
        if order.compute and self._sparse_forward is None:
            raise BrokenPromiseError("holes to compute, and no model at hand")
        block_ids = torch.tensor(order.block_ids, dtype=torch.int64)
        for run in order.runs:
            kv = self._store.read(run.donor_id, run.donor_start, run.length)
            slots = self._cache.slots(block_ids, run.target_start, run.target_end)
            for layer, keys in enumerate(self._moved(kv[:, 0], run.shift)):
                self._cache.write(layer, keys, kv[layer, 1], slots)
        if self._sparse_forward is not None and self._is_alone and len(order.verified):
            ids = np.zeros(order.end, np.int64)
            ids[order.verified] = order.verified_ids
            opened = PagedRequest(self._cache, self._sparse_forward, block_ids, ids)
            if (found := complaint(opened, order.verified)) is not None:
                raise BrokenPromiseError(found)
        return True

    def _compute(self, order: LoadOrder) -> Filled:
        if order.choice is not None and self._sparse_forward is not None:
            return fill(*opened_for_choice(self._cache, self._sparse_forward, order))
        if order.compute and self._sparse_forward is not None:
            block_ids = torch.tensor(order.block_ids, dtype=torch.int64)
            self._sparse_forward.compute(block_ids, order.compute, order.token_ids)
        return Filled(None, 0, order.compute, 0.0)

    def _study(self, order: StudyOrder) -> None:
        """Compute a stretch of a text of its own. What could not be computed is never copied."""
        started = time.perf_counter()
        ready = self._border.call("study", order.request_id, partial(self._can_study, order), False)
        computed = self._agree(ready)
        if computed and self._is_alone:
            computed = self._border.call("study", order.request_id, partial(self._compute_alone, order), False)
        elif computed:
            self._compute_alone(order)  # as in _load: all ranks are in this forward together
        if not computed:
            self._failed_studies.add(order.donor_id)
            error = self._faults.pop(order.request_id, "another rank could not study the text")
            self._news.study_faults[order.donor_id] = error
            return
        self._news.studied_tokens += len(order.token_ids)
        self._news.study_ms += (time.perf_counter() - started) * 1e3

    def _can_study(self, order: StudyOrder) -> bool:
        if self._sparse_forward is None:
            raise BrokenPromiseError("a text to study, and no model at hand")
        if order.donor_id in self._failed_studies:
            raise BrokenPromiseError("an earlier part of the text was not computed")
        return True

    def _compute_alone(self, order: StudyOrder) -> bool:
        assert self._sparse_forward is not None, "asked before"
        block_ids = torch.tensor(order.block_ids, dtype=torch.int64)
        part = TokenRange(order.start, order.start + len(order.token_ids))
        self._sparse_forward.compute(block_ids, [part], order.token_ids)
        return True

    def _moved(self, keys: torch.Tensor, shift: int) -> Iterator[torch.Tensor]:
        """Keys layer by layer: short runs in one call, long ones in pieces that stay in the processor's cache."""
        if keys.shape[1] < LONG_RUN_TOKENS:
            yield from rotate_keys(keys, shift, self._rotation)
            return
        for layer in keys:
            yield rotate_keys(layer, shift, self._rotation)

    def _capture(self, order: CaptureOrder) -> bool:
        if order.donor_id in self._failed_studies:
            raise BrokenPromiseError("its text was not computed to the end")
        if order.start == 0:
            self._store.begin(order.donor_id, order.donor_tokens)
        blocks = torch.tensor(order.block_ids, dtype=torch.int64)
        for layer in range(len(self._cache.names)):
            keys, values = self._cache.read(layer, blocks)
            self._store.write(order.donor_id, layer, order.start, keys[: order.tokens], values[: order.tokens])
        if order.is_last:
            self._store.commit(order.donor_id)
            self._news.stored[order.donor_id] = 1
        return True


def opened_for_choice(
    cache: AttentionCache, sparse_forward: SparseForward, order: LoadOrder
) -> tuple[PagedRequest, Fill]:
    """The request of an order whose worker is to choose, and what it is to fill."""
    choice = order.choice
    assert choice is not None, "asked only for orders with a choice"
    ids = np.concatenate([choice.claim_ids, choice.question_ids])
    blocks = torch.tensor(choice.block_ids, dtype=torch.int64)
    opened = PagedRequest(cache, sparse_forward, blocks, ids, order.start)
    asked = len(choice.question_ids)
    question = TokenRange(order.end, order.end + asked) if asked else None
    return opened, Fill(TokenRange(order.start, order.end), order.runs, order.compute, question, choice.selection)
