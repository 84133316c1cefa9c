"""The half in a worker's process: fills claimed positions, copies finished prefills.

Every claimed position is filled in the step of its command. What cannot be loaded is computed by the sparse forward;
only where that is impossible are the blocks reported as invalid: the engine computes them or fails their request.
"""

from __future__ import annotations

import logging
import time
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from semblend.contract import FaultContained, TokenRange
from semblend.integration.border import Border
from semblend.integration.core.load_check import find_mismatch
from semblend.integration.core.rank_group import ALONE, RankGroup
from semblend.integration.core.selective_fill import Fill, Filled, fill
from semblend.integration.vllm.commands import (
    ANOTHER_RANK,
    AuditCommand,
    CaptureCommand,
    LoadCommand,
    LoadReport,
    PrefillCommand,
    RepairCommand,
    StepCommands,
    StepReport,
)
from semblend.integration.vllm.open_request import PagedRequest

if TYPE_CHECKING:
    from semblend.integration.vllm.attention_cache import AttentionCache
    from semblend.integration.vllm.fleet_worker import FleetWorker
    from semblend.integration.vllm.sparse_forward import SparseForward
    from semblend.integration.vllm.transfers import Transfers


class ClaimNotKeptError(Exception):
    """A claim that this rank, another rank or the scheduler half cannot keep."""


class WorkerHalf:
    """One per rank of ``ranks``. All ranks get the same commands and carry them out in the same order."""

    def __init__(
        self,
        cache: AttentionCache,
        transfers: Transfers,
        sparse_forward: SparseForward | None,
        ranks: RankGroup,
        log: logging.Logger,
        fleet: FleetWorker | None = None,
    ) -> None:
        self._cache = cache
        self._fleet = fleet
        self._transfers = transfers
        self._sparse_forward = sparse_forward
        self._border = Border(self._note, log)
        self._faults: dict[str, str] = {}
        self._ranks = ranks
        self._is_alone = ranks.size == 1
        self._report = StepReport()
        self._invalid_blocks: set[int] = set()
        self._step_started = 0.0
        self._load_s = 0.0  # of this step: all but the engine's own forward pass
        self._failed_prefills: set[str] = set()  # donor ids, until the scheduler half drops them
        self._layer_numbers = {name: layer for layer, name in enumerate(cache.names)}

    def protect_captured(self, commands: StepCommands) -> None:
        """Before the engine overwrites blocks that were freed: captures out of them come first."""
        if commands.frees_captured:
            self._transfers.protect_captured()

    def wait_for_layer(self, layer_name: str) -> None:
        """Before a forward pass reads a layer: the step's loads into it come first."""
        if (layer := self._layer_numbers.get(layer_name)) is not None:
            self._transfers.wait_for_layer(layer)

    def wait_for_layers(self) -> None:
        """The same for all layers at once; they arrive in order."""
        self._transfers.wait_for_layer(len(self._layer_numbers) - 1)

    def begin_step(self) -> None:
        """Before the step's loads and forward pass, in whichever order the engine does them."""
        self._step_started, self._load_s = time.perf_counter(), 0.0

    def load(self, commands: StepCommands) -> None:
        """Load every claim or compute it; the last resort are invalid blocks.

        With claims it comes before the step's forward pass, without any the engine may do it after.
        """
        started = time.perf_counter()
        self._carry_out(commands)
        self._load_s = time.perf_counter() - started

    def _carry_out(self, commands: StepCommands) -> None:
        for command in commands.loads:
            report = self._load(command)
            if report is None:
                self._report.load_faults[command.request_id] = self._faults.pop(command.request_id, "unknown")
                self._invalid_blocks.update(command.block_ids[command.start // self._cache.block_tokens :])
            else:
                self._report.loaded[command.request_id] = report
        if commands.prefill is not None:
            self._prefill(commands.prefill)
        if commands.repair is not None:
            self._repair(commands.repair)
        if commands.audit is not None and self._fleet is not None:
            self._audit(commands.audit, self._fleet)

    def save(self, commands: StepCommands) -> None:
        """After the step's loads and forward pass: drop and copy donors as commanded."""
        if commands.timed is not None:
            self._report.timed = commands.timed, (time.perf_counter() - self._step_started - self._load_s) * 1e3
        for donor_id in commands.drops:
            self._transfers.drop(donor_id)
            self._failed_prefills.discard(donor_id)
        started = time.perf_counter()
        for command in commands.captures:
            if not self._border.call("capture", command.request_id, partial(self._capture, command), False):
                self._report.capture_faults[command.donor_id] = self._faults.pop(command.request_id, "unknown")
            if command.release:
                self._transfers.release(command.request_id)
        for request_id in commands.releases:
            self._transfers.release(request_id)
        self._border.call("capture", "", self._transfers.end_step, None)
        self._collect()
        self._report.capture_ms += (time.perf_counter() - started) * 1e3 if commands.captures else 0.0
        if self._fleet is not None:
            self._border.call("fleet", "", partial(self._exchange, self._fleet, commands), None)

    def _exchange(self, fleet: FleetWorker, commands: StepCommands) -> None:
        """Start this step's fetches, for which drops have made room, and publications, which captures have stored."""
        for fetch in commands.fetches:
            fleet.fetch(fetch)
        for publication in commands.publications:
            fleet.publish(publication)
        if commands.rests:
            fleet.rest()

    def _collect(self) -> None:
        """Report the captures that are done; on a device that may be some steps later."""
        for copied in self._transfers.take_copied():
            command = copied.command
            self._report.captured_tokens += command.tokens
            if copied.is_stored:
                self._report.stored[command.donor_id] = 1
            elif command.is_last:
                self._report.capture_faults[command.donor_id] = "its copy was not completed"

    def take_invalid_blocks(self) -> set[int]:
        taken, self._invalid_blocks = self._invalid_blocks, set()
        return taken

    def take_released(self) -> set[str]:
        """Finished requests whose blocks can be released."""
        self._collect()
        return self._transfers.take_released()

    def take_report(self) -> StepReport | None:
        if self._fleet is not None:
            self._report.fetched |= self._border.call("fleet", "", self._fleet.take_fetched, {})
        if self._report.is_empty:
            return None
        taken, self._report = self._report, StepReport()
        return taken

    def _note(self, fault: FaultContained) -> None:
        """Keep the first fault of a command; later ones are its consequences."""
        self._faults.setdefault(fault.request_id, f"{fault.stage}: {fault.error}")

    def _load(self, command: LoadCommand) -> LoadReport | None:
        """Rotate and write the runs, then compute the gaps. All ranks do both, or all compute the whole claim."""
        started = time.perf_counter()
        written = self._border.call("write", command.request_id, partial(self._write_runs, command), False)
        if not self._ranks.agree(written) or not self._verify(command):
            self._faults.setdefault(command.request_id, ANOTHER_RANK)
            return self._compute_claim(command)
        loaded = time.perf_counter()
        filled: Filled | None
        if self._is_alone:
            filled = self._border.call("compute", command.request_id, partial(self._compute, command), None)
            if filled is None:
                return self._compute_claim(command)
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
        if command.compute and self._sparse_forward is None:
            raise ClaimNotKeptError("gaps to compute, but the model is not available")
        self._transfers.load(command.runs, command.block_ids, command.cached)
        return True

    def _verify(self, command: LoadCommand) -> bool:
        """Compare the verification positions with the model, each rank its own heads. False if any rank differs."""
        if self._sparse_forward is None or not len(command.verified):
            return True  # on all ranks alike: they have the same command
        check = partial(self._check_load, command, self._sparse_forward)
        if self._is_alone:
            return self._border.call("write", command.request_id, check, False)
        try:
            is_right = check()
        except ClaimNotKeptError as error:  # anything else ends the engine, as in _load
            self._faults.setdefault(command.request_id, f"write: {error}")
            is_right = False
        return self._ranks.agree(is_right)

    def _check_load(self, command: LoadCommand, sparse_forward: SparseForward) -> bool:
        block_ids = self._on_device(command.block_ids)
        opened = PagedRequest(self._cache, sparse_forward, block_ids, command.claim_ids, command.start)
        self._transfers.wait_for_layer(0)
        if (found := find_mismatch(opened, command.verified, self._cache.eight_bits)) is not None:
            raise ClaimNotKeptError(found)
        return True

    def _compute(self, command: LoadCommand) -> Filled:
        if command.recompute is not None and self._sparse_forward is not None:
            self.wait_for_layers()  # probes read layers outside of a forward pass
            return fill(*open_for_recompute(self._cache, self._sparse_forward, command, self._ranks))
        if command.compute and self._sparse_forward is not None:
            ids = command.ids_of(command.compute)
            self._sparse_forward.compute(self._on_device(command.block_ids), command.compute, ids)
        return Filled(None, 0, command.compute, 0.0)

    def _compute_claim(self, command: LoadCommand) -> LoadReport | None:
        """Compute all of a claim that could not be loaded, in the same step. None: it could not be computed either."""
        if self._sparse_forward is None:
            return None
        started = time.perf_counter()
        claim = TokenRange(command.start, command.end)
        compute = partial(self._compute_alone, command.block_ids, claim, command.claim_ids)
        if not self._is_alone:
            compute()  # as in _load: all ranks are in this forward pass together
        elif not self._border.call("compute", command.request_id, compute, False):
            return None
        return LoadReport(
            donor_ids=(),
            runs=0,
            reused_tokens=0,
            computed_tokens=len(claim),
            load_ms=0.0,
            compute_ms=(time.perf_counter() - started) * 1e3,
            groups=1,
            fault=self._faults.pop(command.request_id, "unknown"),
        )

    def _compute_alone(self, block_ids: tuple[int, ...], part: TokenRange, token_ids: NDArray[np.int64]) -> bool:
        assert self._sparse_forward is not None, "checked before"
        self._sparse_forward.compute(self._on_device(block_ids), [part], token_ids)
        return True

    def _on_device(self, block_ids: tuple[int, ...]) -> torch.Tensor:
        return torch.tensor(block_ids, dtype=torch.int64, device=self._cache.device)

    def _prefill(self, command: PrefillCommand) -> None:
        """Compute a slice of an isolated prefill. What could not be computed is never copied."""
        started = time.perf_counter()
        ready = self._border.call("study", command.request_id, partial(self._check_prefill, command), False)
        computed = self._ranks.agree(ready)
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
        part = TokenRange(command.start, command.start + len(command.token_ids))
        return self._compute_alone(command.block_ids, part, command.token_ids)

    def _repair(self, command: RepairCommand) -> None:
        """Compute a slice of a repair. The scheduler half ends a repair of which a slice was not computed."""
        started = time.perf_counter()
        part = TokenRange(command.start, command.start + len(command.token_ids))
        compute = partial(self._compute_alone, command.block_ids, part, command.token_ids)
        if not self._is_alone:
            compute()  # as in _load: all ranks are in this forward pass together
        elif not self._border.call("repair", command.request_id, compute, False):
            self._report.repair_faults[command.number] = self._faults.pop(command.request_id, "unknown")
            return
        self._report.repaired[command.number] = len(part)
        self._report.repair_ms += (time.perf_counter() - started) * 1e3

    def _audit(self, command: AuditCommand, fleet: FleetWorker) -> None:
        """Compute a slice of a fetched donor; after the last one compare. Donors are shared by single ranks only."""
        if not self._border.call("audit", command.request_id, partial(self._audit_slice, command, fleet), False):
            self._report.audited[command.donor_id] = None

    def _audit_slice(self, command: AuditCommand, fleet: FleetWorker) -> bool:
        part = TokenRange(command.start, command.start + len(command.token_ids))
        self._compute_alone(command.block_ids, part, command.token_ids)
        if command.ranges:
            blocks = self._on_device(command.block_ids)
            sides = [self._cache.read(layer, blocks) for layer in range(len(self._cache.names))]
            self._report.audited[command.donor_id] = fleet.audit(command.donor_id, sides, command.ranges)
        return True

    def _capture(self, command: CaptureCommand) -> bool:
        if command.donor_id in self._failed_prefills:
            raise ClaimNotKeptError("its passages were not computed completely")
        self._transfers.capture(command)
        return True


def open_for_recompute(
    cache: AttentionCache,
    sparse_forward: SparseForward,
    command: LoadCommand,
    ranks: RankGroup = ALONE,
) -> tuple[PagedRequest, Fill]:
    """The request of a command with recomputation, and what to fill in it."""
    recompute = command.recompute
    assert recompute is not None, "only commands with recomputation are opened"
    ids = np.concatenate([command.claim_ids, recompute.question_ids])
    blocks = torch.tensor(recompute.block_ids, dtype=torch.int64, device=cache.device)
    opened = PagedRequest(cache, sparse_forward, blocks, ids, command.start, ranks)
    asked = len(recompute.question_ids)
    question = TokenRange(command.end, command.end + asked) if asked else None
    return opened, Fill(command.runs, command.compute, question, recompute.selection)
