"""Each position is computed once: holes by the probe that needs them, then the chosen. Who cannot ask falls back."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

from semblend.contract import ContextRisk, Run, TokenRange
from semblend.integration.vllm.selective_load import MAX_QUESTION_TOKENS, Filled, SelectiveLoad
from semblend.plan.selection import Selection

pytestmark = pytest.mark.models
LAYERS, HEADS, DIM, END = 3, 2, 8, 60
HOLES = (TokenRange(4, 10), TokenRange(30, 36))
RUNS = tuple(Run("d", start, start, length, ContextRisk(10, 5, 0.4)) for start, length in ((10, 20), (36, 24)))


class Engine:
    """A cache and a forward in one: layers that only listen, keys that say which position they are of."""

    max_tokens = 4096

    def __init__(self) -> None:
        self.layers = [torch.nn.Module() for _ in range(LAYERS)]
        for layer in self.layers:
            layer.forward = lambda query, key, value: query
            layer.impl = SimpleNamespace(scale=1.0)
        self.keys = torch.randn(2048, HEADS, DIM, generator=torch.Generator().manual_seed(1))
        self.computed: list[tuple[list[int], list[int]]] = []

    def read(self, _layer: int, _block_ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.keys, self.keys

    def compute(self, _block_ids: torch.Tensor, ranges: Any, token_ids: Any) -> None:
        positions = [at for part in ranges for at in range(part.start, part.end)]
        self.computed.append((positions, token_ids.tolist()))
        rows = self.keys[positions].reshape(len(positions), -1)
        for layer in self.layers:
            layer(rows, rows + 1, rows + 1)


def fill(policy: str, share: float, question_tokens: int = 9) -> tuple[Engine, Filled]:
    """Token ids are their positions, so that a wrong pair is seen."""
    ids = np.arange(END + question_tokens, dtype=np.int64)
    order: Any = SimpleNamespace(
        start=4,
        end=END,
        runs=RUNS,
        compute=HOLES,
        token_ids=np.concatenate([ids[hole.start : hole.end] for hole in HOLES]),
        choice=SimpleNamespace(
            selection=Selection(policy, share), block_ids=(0,), claim_ids=ids[4:END], question_ids=ids[END:]
        ),
    )
    engine: Any = Engine()
    return engine, SelectiveLoad(engine, engine).fill(order)


@pytest.mark.parametrize("policy", ["first", "deviation", "question", "question_by_deviation", "question_or_deviation"])
def test_every_hole_and_chosen_position_is_computed_once_and_with_its_token(policy: str) -> None:
    engine, filled = fill(policy, 0.25)
    whole = [positions for positions, _ in engine.computed if positions != list(range(4, END))]  # not the layer probe
    in_claim = [at for positions in whole for at in positions if at < END]
    assert len(in_claim) == len(set(in_claim)) == 12 + 11
    assert set(in_claim) >= {at for hole in HOLES for at in range(hole.start, hole.end)}
    assert filled.chosen_tokens == 11
    assert {at for part in filled.ranges for at in range(part.start, part.end)} == set(in_claim)
    assert all(positions == ids for positions, ids in engine.computed)


@pytest.mark.parametrize("question_tokens", [0, MAX_QUESTION_TOKENS + 1])
def test_without_a_question_the_heads_of_runs_are_computed_in_one_pass(question_tokens: int) -> None:
    engine, filled = fill("question", 0.25, question_tokens)
    assert filled.policy == "first"
    assert len(engine.computed) == 1
    assert set(range(10, 15)) <= set(engine.computed[0][0])


def test_a_share_of_nothing_probes_nothing() -> None:
    engine, filled = fill("question_by_deviation", 0.0)
    assert len(engine.computed) == 1
    assert (filled.chosen_tokens, filled.ranges) == (0, HOLES)
