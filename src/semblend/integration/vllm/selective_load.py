"""Fills a claim whose runs are loaded: probes what the policy asks for, chooses, computes holes and chosen together.

Called by the worker half between writing the runs and the engine's own step.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import torch
from numpy.typing import NDArray

from semblend.contract import TokenRange
from semblend.integration.vllm.probes import layer_deviation, question_attention
from semblend.plan.selection import POLICIES, Probe, Selection, choose, evidence_of, joined, with_probes

if TYPE_CHECKING:
    from semblend.integration.vllm.attention_cache import AttentionCache
    from semblend.integration.vllm.orders import LoadOrder
    from semblend.integration.vllm.sparse_forward import SparseForward

# A longer end of the prompt is new text, not a question: asking it would cost as much as it could save.
MAX_QUESTION_TOKENS: Final = 512
# Where a policy cannot be asked.
FALLBACK: Final = "first"


@dataclass(frozen=True, slots=True)
class Filled:
    """What was computed: holes and chosen. ``policy`` is the one that chose, which may be the fallback."""

    policy: str
    chosen_tokens: int
    ranges: tuple[TokenRange, ...]
    choose_ms: float

    @property
    def groups(self) -> int:
        """Stretches of computed positions, each a virtual sequence: what a choice costs beyond its tokens."""
        return len(self.ranges)


class SelectiveLoad:
    """``fill`` leaves every position of the claim in the cache."""

    def __init__(self, cache: AttentionCache, sparse_forward: SparseForward) -> None:
        self._cache = cache
        self._sparse_forward = sparse_forward

    def fill(self, order: LoadOrder) -> Filled:
        choice = order.choice
        assert choice is not None, "the worker half asks only for orders with a choice"
        started = time.perf_counter()
        block_ids = torch.tensor(choice.block_ids, dtype=torch.int64)
        selection = choice.selection
        has_question = 0 < len(choice.question_ids) <= MAX_QUESTION_TOKENS
        if Probe.ATTENTION in POLICIES.get(selection.policy).needs and not has_question:
            selection = Selection(FALLBACK, selection.share, selection.bridge_tokens)
        chosen, holes = self._choose(order, selection, block_ids)
        ranges = joined(holes, chosen)
        choose_ms = (time.perf_counter() - started) * 1e3
        self._sparse_forward.compute(block_ids, ranges, _ids_of(ranges, order.start, choice.claim_ids))
        return Filled(selection.policy, len(chosen), joined(order.compute, chosen), choose_ms)

    def _choose(
        self, order: LoadOrder, selection: Selection, block_ids: torch.Tensor
    ) -> tuple[NDArray[np.int64], tuple[TokenRange, ...]]:
        """Positions to compute, and the holes that are still to be filled with them."""
        choice = order.choice
        assert choice is not None
        needs = POLICIES.get(selection.policy).needs if selection.share > 0 else frozenset()
        attention = deviation = None
        holes = order.compute
        if Probe.DEVIATION in needs:
            claim = TokenRange(order.start, order.end)
            deviation = layer_deviation(self._cache, self._sparse_forward, block_ids, claim, choice.claim_ids)
        if Probe.ATTENTION in needs:
            question = TokenRange(order.end, order.end + len(choice.question_ids))
            ids = np.concatenate([order.token_ids, choice.question_ids])
            attention = question_attention(self._cache, self._sparse_forward, block_ids, (*holes, question), ids)
            holes = ()  # the question needed them; computing them again behind what is chosen buys little
        return choose(selection, with_probes(evidence_of(order.runs), attention, deviation)), holes


def _ids_of(ranges: tuple[TokenRange, ...], start: int, claim_ids: NDArray[np.int64]) -> NDArray[np.int64]:
    parts = [claim_ids[part.start - start : part.end - start] for part in ranges]
    return np.concatenate(parts) if parts else np.empty(0, np.int64)
