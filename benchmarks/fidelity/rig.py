"""The real engine in this process: its model, its paged cache, and the worker half that fills claims in it.

No scheduler is in between: blocks are ours to use, a request is a list of positions. Runs in the engine's environment.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.fidelity.arm import OPEN_GATES
from benchmarks.fidelity.engine import STEP_TOKENS
from benchmarks.fidelity.items import FidelityItem
from benchmarks.fidelity.readings import POSITIONS, Reading, reading_of
from benchmarks.vllm.texts import TokenIds
from semblend.contract import Decline, Namespace, ReusePlan, Run, TokenRange
from semblend.integration.core.rank_group import ALONE
from semblend.integration.core.selective_fill import Fill
from semblend.integration.vllm.attention_cache import AttentionCache
from semblend.integration.vllm.commands import (
    CaptureCommand,
    LoadCommand,
    LoadReport,
    Recompute,
    StepCommands,
)
from semblend.integration.vllm.open_request import PagedRequest
from semblend.integration.vllm.self_test import prove_on_model
from semblend.integration.vllm.sparse_forward import SparseForward
from semblend.integration.vllm.transfers import HostTransfers
from semblend.integration.vllm.worker_half import WorkerHalf, open_for_recompute
from semblend.kv.donor_store import KVShape, open_donor_store
from semblend.pipeline.planner import Planner
from semblend.plan.gates import Gates
from semblend.plan.selection import Selection
from semblend.settings import Settings

NAMESPACE = Namespace(tenant="fidelity", model="model")
HOST_BYTES = 4 << 30


class RigError(Exception):
    """The engine or the worker half did not do what the bench relies on."""


@dataclass(frozen=True, slots=True)
class Timed:
    """``first`` [1, vocabulary]: the model's distribution of the first token."""

    reading: Reading
    first_token_ms: float
    first: torch.Tensor


class Rig:
    def __init__(self, engine: Any) -> None:
        self.config = engine.llm_engine.vllm_config
        executor: Any = engine.llm_engine.model_executor
        self.runner: Any = executor.driver_worker.worker.model_runner
        group = self.runner.kv_cache_config.kv_cache_groups[0]
        spec = group.kv_cache_spec
        context = self.config.compilation_config.static_forward_context
        self.cache = AttentionCache(context, group.layer_names, spec.block_size)
        self.cache.probe(self.cache.blocks - 1, spec.num_kv_heads, spec.head_size)
        self.forward = SparseForward(self.runner, self.config, self.cache, STEP_TOKENS)
        self.rotations = prove_on_model(self.config, self.runner.get_model(), self.cache, self.forward).rotations
        shape = KVShape(len(group.layer_names), spec.num_kv_heads, spec.head_size, self.cache.dtype)
        self._store = open_donor_store(shape, HOST_BYTES)
        log = logging.getLogger("fidelity")
        transfers = HostTransfers(self.cache, self._store, self.rotations)
        self.half = WorkerHalf(self.cache, transfers, self.forward, ALONE, log)
        per_request = -(-STEP_TOKENS // spec.block_size)
        if self.cache.blocks < 3 * per_request + 2:
            raise RigError(f"{self.cache.blocks} blocks do not hold a donor, a recipient and a cold copy of it")
        self.donor_blocks = tuple(range(1, 1 + per_request))
        self.blocks = tuple(range(1 + per_request, 1 + 2 * per_request))
        self.cold_blocks = tuple(range(1 + 2 * per_request, 1 + 3 * per_request))

    # -- cold --------------------------------------------------------------------------------------------------------

    def prefill(self, blocks: tuple[int, ...], ids: NDArray[np.int64], piece: int = STEP_TOKENS) -> torch.Tensor:
        """Compute a whole prompt, ``piece`` tokens at a time; the last hidden states."""
        hidden = torch.empty(0)
        for start in range(0, len(ids), piece):
            end = min(len(ids), start + piece)
            hidden = self.forward.compute(torch.tensor(blocks), [TokenRange(start, end)], ids[start:end])
        return hidden

    def cold(self, item: FidelityItem, piece: int = STEP_TOKENS) -> Timed:
        ids = np.asarray(item.recipient, np.int64)
        started = time.perf_counter()
        hidden = self.prefill(self.cold_blocks, ids, piece)
        first = self.logprobs(hidden[-1:])
        spent = (time.perf_counter() - started) * 1e3
        return Timed(self.along(item, item.reference, self.cold_blocks, first), spent, first)

    # -- ours --------------------------------------------------------------------------------------------------------

    def store(self, item: FidelityItem) -> None:
        """Donors computed and captured, as the engine would."""
        for number, donor in enumerate(item.donors):
            self.prefill(self.donor_blocks, np.asarray(donor, np.int64))
            self.keep(item, number)

    def keep(self, item: FidelityItem, number: int) -> None:
        """Capture a donor of the item whose tokens were computed at the start of ``donor_blocks``."""
        name, tokens = f"{item.name}/{number}", len(item.donors[number])
        count = -(-tokens // self.cache.block_tokens)
        command = CaptureCommand(name, name, tokens, 0, tokens, self.donor_blocks[:count])
        self.half.save(StepCommands(captures=[command]))
        report = self.half.take_report()
        if report is None or report.capture_faults:
            raise RigError(f"a donor was not stored: {report.capture_faults if report else 'no report'}")

    def plan(self, item: FidelityItem, gates: Gates = OPEN_GATES) -> ReusePlan | Decline:
        """The real planner's answer for the item's donors."""
        with Planner(settings=Settings(embedder="none"), gates=gates, budget_bytes=1 << 26) as planner:
            for number, donor in enumerate(item.donors):
                planner.register(f"{item.name}/{number}", np.asarray(donor, np.uint32), NAMESPACE)
            return planner.plan(np.asarray(item.recipient, np.uint32), NAMESPACE)

    def loaded(self, run: Run) -> torch.Tensor:
        """K and V of a run [layers, 2, tokens, heads, head_dim], as a load writes them."""
        return self._moved(self._store.read(run.donor_id, run.donor_start, run.length), run.shift)

    def _moved(self, kv: torch.Tensor, shift: int) -> torch.Tensor:
        keys = torch.stack(list(self.rotations.move(kv[:, 0], shift)))
        return torch.stack([keys, kv[:, 1]], dim=1)

    def write(self, run: Run, kv: torch.Tensor) -> None:
        slots = self.cache.slots(torch.tensor(self.blocks), run.target_start, run.target_end)
        for layer, (keys, values) in enumerate(kv):
            self.cache.write(layer, keys.contiguous(), values.contiguous(), slots)

    def forget(self, item: FidelityItem) -> None:
        self.half.save(StepCommands(drops=[f"{item.name}/{number}" for number in range(len(item.donors))]))

    def command(self, item: FidelityItem, plan: ReusePlan, selection: Selection) -> LoadCommand:
        ids = np.asarray(item.recipient, np.int64)
        start, end = plan.exact_prefix_tokens, plan.claim_end
        count = -(-len(ids) // self.cache.block_tokens)
        return LoadCommand(
            item.name,
            self.blocks[: -(-end // self.cache.block_tokens)],
            start,
            end,
            plan.runs,
            plan.compute,
            ids[start:end],
            recompute=Recompute(selection, self.blocks[:count], ids[end:]),
        )

    def opened(self, command: LoadCommand) -> tuple[PagedRequest, Fill]:
        """The request of a load command, and what is to be filled in it."""
        return open_for_recompute(self.cache, self.forward, command)

    def load(self, command: LoadCommand) -> LoadReport:
        self.half.load(StepCommands(loads=[command]))
        report = self.half.take_report()
        loaded = report.loaded.get(command.request_id) if report is not None else None
        if loaded is None or loaded.fault:
            raise RigError(f"the load failed: {loaded.fault if loaded else report}")
        return loaded

    def finish(self, item: FidelityItem, plan: ReusePlan, started: float) -> Timed:
        """What the engine does after the load: the rest of the prompt, the first token; then the text is read."""
        ids = np.asarray(item.recipient, np.int64)
        rest = TokenRange(plan.claim_end, len(ids))
        hidden = self.forward.compute(torch.tensor(self.blocks), [rest], ids[rest.start :])
        first = self.logprobs(hidden[-1:])
        spent = (time.perf_counter() - started) * 1e3
        return Timed(self.along(item, item.reference, self.blocks, first), spent, first)

    # -- reading -----------------------------------------------------------------------------------------------------

    def answer(self, item: FidelityItem, timed: Timed) -> TokenIds:
        """The greedy answer of the model after the cold prompt."""
        tokens = [int(timed.first[-1].argmax())]
        for at in range(len(item.recipient), len(item.recipient) + POSITIONS - 1):
            last = np.asarray(tokens[-1:], np.int64)
            hidden = self.forward.compute(torch.tensor(self.cold_blocks), [TokenRange(at, at + 1)], last)
            tokens.append(int(self.logprobs(hidden).argmax()))
        return tuple(tokens)

    def along(self, item: FidelityItem, text: TokenIds, blocks: tuple[int, ...], first: torch.Tensor) -> Reading:
        """The model's distribution at each position of a text after the prompt that ``blocks`` hold."""
        ids, at = np.asarray(text, np.int64), len(item.recipient)
        hidden = self.forward.compute(torch.tensor(blocks), [TokenRange(at, at + len(ids) - 1)], ids[:-1])
        return reading_of(torch.cat([first, self.logprobs(hidden)]).numpy(), ids)

    def logprobs(self, hidden: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.runner.get_model().compute_logits(hidden)
        return logits.float().log_softmax(dim=-1)
