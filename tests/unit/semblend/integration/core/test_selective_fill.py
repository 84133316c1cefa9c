"""Each position is computed once: holes by the probe that needs them, then the chosen. Who cannot ask falls back."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from tests.ranks import RankThreads

from semblend.contract import ContextRisk, Run, TokenRange
from semblend.integration.core.open_request import in_passes
from semblend.integration.core.probes import UnobservedError, question_attention
from semblend.integration.core.rank_group import ALONE, RankGroup
from semblend.integration.core.selective_fill import Fill, Filled
from semblend.integration.core.selective_fill import fill as fill_claim
from semblend.plan.selection import (
    MAX_QUESTION_TOKENS,
    Selection,
    as_ranges,
    choose,
    evidence_of,
    joined,
    with_attention,
)

pytestmark = pytest.mark.models
LAYERS, HEADS, DIM, END = 3, 2, 8, 60
GAPS = (TokenRange(4, 10), TokenRange(30, 36))
RUNS = tuple(Run("d", start, start, length, ContextRisk(10, 5, 0.4)) for start, length in ((10, 20), (36, 24)))


class Engine:
    """A request whose layers only listen, whose keys say which position they are of; ``rows`` in one forward."""

    def __init__(
        self,
        rows: int = 99,
        ranks: RankGroup = ALONE,
        heads: slice = slice(None),
        reaches: Sequence[int | None] = (None,) * LAYERS,
    ) -> None:
        self.rows = rows
        self.reaches = reaches
        self.ranks = ranks
        self.layers = [torch.nn.Module() for _ in range(LAYERS)]
        for layer in self.layers:
            layer.forward = lambda query, key, value: query
        self.keys = torch.randn(2048, HEADS, DIM, generator=torch.Generator().manual_seed(1))[:, heads]
        self.computed: list[list[int]] = []

    def scale(self, _layer: int) -> float:
        return 1.0

    def reach(self, layer: int) -> int | None:
        return self.reaches[layer]

    def read(self, _layer: int, part: TokenRange) -> tuple[torch.Tensor, torch.Tensor]:
        return self.keys[part.start : part.end], self.keys[part.start : part.end]

    def passes(self, ranges: Any) -> Any:
        return in_passes(ranges, 40, self.rows)

    def compute(self, ranges: Any) -> None:
        self.computed.append([at for part in ranges for at in range(part.start, part.end)])
        for portion in self.passes(ranges):
            positions = [at for part in portion for at in range(part.start, part.end)]
            rows = self.keys[positions].reshape(len(positions), -1)
            for layer in self.layers:
                layer(rows, rows + self.noise(positions), rows + self.noise(positions))

    def noise(self, positions: list[int]) -> torch.Tensor:
        """Deviation that differs by position."""
        return 1 + torch.tensor(positions)[:, None] % 7 / 3


def fill(policy: str, share: float, question_tokens: int = 9, rows: int = 99) -> tuple[Engine, Filled]:
    question = TokenRange(END, END + question_tokens) if question_tokens else None
    engine = Engine(rows)
    return engine, fill_claim(engine, Fill(RUNS, GAPS, question, Selection(policy, share)))


@pytest.mark.parametrize("policy", ["first", "question"])
def test_every_hole_and_chosen_position_is_computed_once(policy: str) -> None:
    engine, filled = fill(policy, 0.25)
    in_claim = [at for positions in engine.computed for at in positions if at < END]
    assert len(in_claim) == len(set(in_claim)) == 12 + 11
    assert set(in_claim) >= {at for gap in GAPS for at in range(gap.start, gap.end)}
    assert filled.recomputed_tokens == 11
    assert {at for part in filled.ranges for at in range(part.start, part.end)} == set(in_claim)


def test_few_rows_in_a_forward_change_no_choice() -> None:
    assert fill("question", 0.25, rows=1)[1].ranges == fill("question", 0.25)[1].ranges


def test_an_engine_whose_layers_are_never_observed_is_an_error() -> None:
    engine = Engine()
    engine.compute = lambda ranges: None  # type: ignore[method-assign]
    command = Fill(RUNS, GAPS, TokenRange(END, END + 9), Selection("question", 0.25))
    with pytest.raises(UnobservedError):
        fill_claim(engine, command)


@pytest.mark.parametrize("question_tokens", [0, MAX_QUESTION_TOKENS + 1])
def test_without_a_question_the_heads_of_runs_are_computed_in_one_pass(question_tokens: int) -> None:
    engine, filled = fill("question", 0.25, question_tokens)
    assert filled.policy == "first"
    assert len(engine.computed) == 1
    assert set(range(10, 15)) <= set(engine.computed[0])


@pytest.mark.parametrize("share", [0.0, 0.02])  # of 44 tokens less than one
def test_a_share_of_nothing_probes_nothing(share: float) -> None:
    engine, filled = fill("question", share)
    assert len(engine.computed) == 1
    assert (filled.recomputed_tokens, filled.ranges) == (0, GAPS)


def test_everything_is_computed_in_one_pass_and_in_its_order() -> None:
    engine, filled = fill("question", 1.0)
    assert engine.computed == [list(range(4, END))]
    assert filled.recomputed_tokens == 44


@pytest.mark.parametrize("policy", ["first", "question"])
def test_two_ranks_with_half_of_the_heads_choose_what_one_rank_chooses(policy: str) -> None:
    group = RankThreads(HEADS)
    command = Fill(RUNS, GAPS, TokenRange(END, END + 9), Selection(policy, 0.25))
    engines = [Engine(ranks=group.of(rank), heads=slice(rank, rank + 1)) for rank in range(HEADS)]
    with ThreadPoolExecutor(HEADS) as pool:
        filled = list(pool.map(lambda engine: fill_claim(engine, command), engines))
    alone = fill_claim(Engine(), command)
    assert [one.ranges for one in filled] == [alone.ranges] * HEADS
    assert [one.recomputed_tokens for one in filled] == [alone.recomputed_tokens] * HEADS


def test_ranks_that_decide_by_their_own_heads_would_choose_differently() -> None:
    command = Fill(RUNS, GAPS, TokenRange(END, END + 9), Selection("question", 0.25))
    own = [fill_claim(Engine(heads=slice(rank, rank + 1)), command).ranges for rank in range(HEADS)]
    assert own[0] != own[1]


def test_layers_with_a_window_have_no_say_in_what_the_question_reads() -> None:
    command = Fill(RUNS, GAPS, TokenRange(END, END + 9), Selection("question", 0.25))
    whole, mixed, windowed = Engine(), Engine(reaches=(8, None, 8)), Engine(reaches=(12,) * LAYERS)
    for engine in (whole, mixed, windowed):
        engine.keys[20:24] *= 3  # what the question reads, beyond every window
    assert fill_claim(mixed, command).ranges == fill_claim(whole, command).ranges
    near = {at for part in fill_claim(windowed, command).ranges for at in range(part.start, part.end)}
    gaps = {at for gap in GAPS for at in range(gap.start, gap.end)}
    seen = set(range(END - 12, END))  # the first query is the question's first token
    assert len((near - gaps) & seen) == len(near - gaps)


def test_a_worker_recomputes_what_the_policy_chooses_from_the_same_evidence() -> None:
    engine, filled = fill("question", 0.25)
    attention = question_attention(Engine(), (*GAPS, TokenRange(END, END + 9)))
    chosen = choose(Selection("question", 0.25), with_attention(evidence_of(RUNS), attention))
    assert filled.policy == "question"
    assert filled.ranges == joined(GAPS, chosen)
    assert engine.computed[-1] == [at for part in as_ranges(chosen) for at in range(part.start, part.end)]
    assert len(engine.computed) == 2, "the question with the gaps, then the chosen: no probe of the whole claim"
