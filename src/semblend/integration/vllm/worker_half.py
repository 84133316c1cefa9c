"""The half in a worker's process: holds donor KV, fills claimed positions, copies finished prefills.

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
from semblend.integration.core.load_check import find_mismatch
from semblend.integration.core.selective_fill import Fill, Filled, fill
from semblend.integration.vllm.commands import (
    CaptureCommand,
    LoadCommand,
    LoadReport,
    PrefillCommand,
    StepCommands,
    StepReport,
)
from semblend.integration.vllm.open_request import PagedRequest
from semblend.kv.rope import Rotation, rotate_keys

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from semblend.integration.vllm.attention_cache import AttentionCache
    from semblend.integration.vllm.sparse_forward import SparseForward
    from semblend.kv.donor_store import DonorStore


LONG_RUN_TOKENS: Final = 1000


class ClaimNotKeptError(Exception):
    """A claim that this rank, another rank or the scheduler half cannot keep."""


class WorkerHalf:
    """One per rank. ``agree`` is true when every rank of the group agrees; without a group, when this one does."""

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
        self._report = StepReport()
        self._invalid_blocks: set[int] = set()
        self._failed_prefills: set[str] = set()  # donor ids, until the scheduler half drops them
        self._released: set[str] = set()

    def load(self, commands: StepCommands) -> None:
        """Before the step's forward pass: load every claim, or report its blocks as invalid."""
        for command in commands.loads:
            report = self._load(command)
            if report is None:
                self._report.load_faults[command.request_id] = self._faults.pop(command.request_id, "unknown")
                self._invalid_blocks.update(command.block_ids[command.start // self._cache.block_tokens :])
            else:
                self._report.loaded[command.request_id] = report
        if commands.prefill is not None:
            self._prefill(commands.prefill)

    def save(self, commands: StepCommands) -> None:
        """After the step's loads and forward pass: drop and copy donors as commanded."""
        for donor_id in commands.drops:
            self._store.drop(donor_id)
            self._failed_prefills.discard(donor_id)
        started = time.perf_counter()
        for command in commands.captures:
            if self._border.call("capture", command.request_id, partial(self._capture, command), False):
                self._report.captured_tokens += command.tokens
            else:
                self._report.capture_faults[command.donor_id] = self._faults.pop(command.request_id, "unknown")
            if command.release:
                self._released.add(command.request_id)
        self._released.update(commands.releases)
        self._report.capture_ms += (time.perf_counter() - started) * 1e3 if commands.captures else 0.0

    def take_invalid_blocks(self) -> set[int]:
        taken, self._invalid_blocks = self._invalid_blocks, set()
        return taken

    def take_released(self) -> set[str]:
        """Finished requests whose blocks can be released."""
        taken, self._released = self._released, set()
        return taken

    def take_report(self) -> StepReport | None:
        if self._report.is_empty:
            return None
        taken, self._report = self._report, StepReport()
        return taken

    def _note(self, fault: FaultContained) -> None:
        """Keep the first fault of a command; later ones are its consequences."""
        self._faults.setdefault(fault.request_id, f"{fault.stage}: {fault.error}")

    def _load(self, command: LoadCommand) -> LoadReport | None:
        """Rotate and write the runs, then compute the gaps. All ranks do both, or none begins the forward pass."""
        started = time.perf_counter()
        written = self._border.call("write", command.request_id, partial(self._write_runs, command), False)
        if not self._agree(written):
            self._faults.setdefault(command.request_id, "write: another rank could not write the runs")
            return None
        loaded = time.perf_counter()
        filled: Filled | None
        if self._is_alone:
            filled = self._border.call("compute", command.request_id, partial(self._compute, command), None)
            if filled is None:
                return None
        else:
            # The other ranks are inside the same forward pass: a fault here must end the engine instead of pairing
            # our next collective with their last one.
            filled = self._compute(command)
        done = time.perf_counter()
        return LoadReport(
            donor_ids=tuple(dict.fromkeys(run.donor_id for run in command.runs)),
            runs=len(command.runs),
            reused_tokens=sum(run.length for run in command.runs) - filled.recomputed_tokens,
            computed_tokens=sum(len(gap) for gap in command.compute) + filled.recomputed_tokens,
            load_ms=(loaded - started) * 1e3,
            compute_ms=(done - loaded) * 1e3,
            select_ms=filled.select_ms,
            selected_by=filled.policy,
            groups=filled.groups,
        )

    def _write_runs(self, command: LoadCommand) -> bool:
        if command.broken:
            raise ClaimNotKeptError(command.broken)
        if command.recompute is not None and not self._is_alone:
            raise ClaimNotKeptError("ranks see different heads and would select different tokens")
        if command.compute and self._sparse_forward is None:
            raise ClaimNotKeptError("gaps to compute, but the model is not available")
        block_ids = torch.tensor(command.block_ids, dtype=torch.int64)
        for run in command.runs:
            kv = self._store.read(run.donor_id, run.donor_start, run.length)
            slots = self._cache.slots(block_ids, run.target_start, run.target_end)
            for layer, keys in enumerate(self._moved(kv[:, 0], run.shift)):
                self._cache.write(layer, keys, kv[layer, 1], slots)
        if self._sparse_forward is not None and self._is_alone and len(command.verified):
            ids = np.zeros(command.end, np.int64)
            ids[command.verified] = command.verified_ids
            opened = PagedRequest(self._cache, self._sparse_forward, block_ids, ids)
            if (found := find_mismatch(opened, command.verified)) is not None:
                raise ClaimNotKeptError(found)
        return True

    def _compute(self, command: LoadCommand) -> Filled:
        if command.recompute is not None and self._sparse_forward is not None:
            return fill(*open_for_recompute(self._cache, self._sparse_forward, command))
        if command.compute and self._sparse_forward is not None:
            block_ids = torch.tensor(command.block_ids, dtype=torch.int64)
            self._sparse_forward.compute(block_ids, command.compute, command.token_ids)
        return Filled(None, 0, command.compute, 0.0)

    def _prefill(self, command: PrefillCommand) -> None:
        """Compute a slice of an isolated prefill. What could not be computed is never copied."""
        started = time.perf_counter()
        ready = self._border.call("study", command.request_id, partial(self._check_prefill, command), False)
        computed = self._agree(ready)
        if computed and self._is_alone:
            computed = self._border.call("study", command.request_id, partial(self._prefill_isolated, command), False)
        elif computed:
            self._prefill_isolated(command)  # as in _load: all ranks are in this forward pass together
        if not computed:
            self._failed_prefills.add(command.donor_id)
            error = self._faults.pop(command.request_id, "another rank could not prefill the passages")
            self._report.prefill_faults[command.donor_id] = error
            return
        self._report.prefilled_tokens += len(command.token_ids)
        self._report.prefill_ms += (time.perf_counter() - started) * 1e3

    def _check_prefill(self, command: PrefillCommand) -> bool:
        if self._sparse_forward is None:
            raise ClaimNotKeptError("passages to prefill, but the model is not available")
        if command.donor_id in self._failed_prefills:
            raise ClaimNotKeptError("an earlier slice of the passages was not computed")
        return True

    def _prefill_isolated(self, command: PrefillCommand) -> bool:
        assert self._sparse_forward is not None, "checked before"
        block_ids = torch.tensor(command.block_ids, dtype=torch.int64)
        part = TokenRange(command.start, command.start + len(command.token_ids))
        self._sparse_forward.compute(block_ids, [part], command.token_ids)
        return True

    def _moved(self, keys: torch.Tensor, shift: int) -> Iterator[torch.Tensor]:
        """Keys layer by layer: short runs in one call, long ones in pieces that fit the processor's cache."""
        if keys.shape[1] < LONG_RUN_TOKENS:
            yield from rotate_keys(keys, shift, self._rotation)
            return
        for layer in keys:
            yield rotate_keys(layer, shift, self._rotation)

    def _capture(self, command: CaptureCommand) -> bool:
        if command.donor_id in self._failed_prefills:
            raise ClaimNotKeptError("its passages were not computed completely")
        if command.start == 0:
            self._store.begin(command.donor_id, command.donor_tokens)
        blocks = torch.tensor(command.block_ids, dtype=torch.int64)
        for layer in range(len(self._cache.names)):
            keys, values = self._cache.read(layer, blocks)
            self._store.write(command.donor_id, layer, command.start, keys[: command.tokens], values[: command.tokens])
        if command.is_last:
            self._store.commit(command.donor_id)
            self._report.stored[command.donor_id] = 1
        return True


def open_for_recompute(
    cache: AttentionCache, sparse_forward: SparseForward, command: LoadCommand
) -> tuple[PagedRequest, Fill]:
    """The request of a command with recomputation, and what to fill in it."""
    recompute = command.recompute
    assert recompute is not None, "only commands with recomputation are opened"
    ids = np.concatenate([recompute.claim_ids, recompute.question_ids])
    blocks = torch.tensor(recompute.block_ids, dtype=torch.int64)
    opened = PagedRequest(cache, sparse_forward, blocks, ids, command.start)
    asked = len(recompute.question_ids)
    question = TokenRange(command.end, command.end + asked) if asked else None
    return opened, Fill(
        TokenRange(command.start, command.end), command.runs, command.compute, question, recompute.selection
    )
