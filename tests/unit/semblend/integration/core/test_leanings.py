"""What a worker keeps of its donors' attention, against dense attention made by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

pytest.importorskip("torch")

import numpy as np
import torch

from semblend.contract import ContextRisk, Run, TokenRange
from semblend.integration.core.leanings import Leanings
from semblend.integration.core.open_request import in_passes
from semblend.integration.core.rank_group import ALONE
from semblend.plan.leaning import SINKS, leaning_layers, lost_context

pytestmark = pytest.mark.models
LAYERS, HEADS, GROUP, DIM, TOKENS = 12, 2, 3, 8, 150
IDS = np.arange(TOKENS)
OTHER = np.full(TOKENS, 10**6)  # a recipient that has nothing of the donor before its runs


class Donor:
    """A donor in the engine's cache: keys and queries of every layer are known. Counts the layers that were run."""

    ranks = ALONE

    def __init__(self, seed: int = 0, tokens: int = TOKENS, reaches: Sequence[int | None] = (None,) * LAYERS) -> None:
        self.reaches = reaches
        random = torch.Generator().manual_seed(seed)
        self.keys = torch.randn(LAYERS, tokens, HEADS, DIM, generator=random)
        self.queries = torch.randn(LAYERS, tokens, HEADS * GROUP * DIM, generator=random)
        self.ran = 0
        self.layers = [torch.nn.Module() for _ in range(LAYERS)]
        for layer in self.layers:
            layer.forward = self._attend

    def _attend(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        self.ran += 1
        return query

    def scale(self, _layer: int) -> float:
        return 0.7

    def reach(self, layer: int) -> int | None:
        return self.reaches[layer]

    def read(self, layer: int, part: TokenRange) -> tuple[torch.Tensor, torch.Tensor]:
        return self.keys[layer, part.start : part.end], self.keys[layer, part.start : part.end]

    def passes(self, ranges: Any) -> Any:
        return in_passes(ranges, 40, 8)

    def compute(self, ranges: Any) -> None:
        for portion in self.passes(ranges):
            rows = [at for part in portion for at in range(part.start, part.end)]
            for number, layer in enumerate(self.layers):
                layer(self.queries[number, rows], self.keys[number, rows], self.keys[number, rows])

    def attention(self) -> np.ndarray:
        """Dense, head by head, mean over heads and the leaning layers, which have no window where others have."""
        tokens = self.keys.shape[1]
        total = torch.zeros(tokens, tokens)
        whole = [layer for layer in range(LAYERS) if self.reaches[layer] is None] or list(range(LAYERS))
        used = [whole[at] for at in leaning_layers(len(whole))]
        for layer in used:
            behind = torch.arange(tokens)[:, None] - torch.arange(tokens)
            hidden = (behind < 0) | (behind > (tokens if self.reaches[layer] is None else self.reaches[layer]))
            for head in range(HEADS * GROUP):
                queries = self.queries[layer].view(tokens, HEADS * GROUP, DIM)[:, head]
                scores = queries @ self.keys[layer, :, head // GROUP].T * 0.7
                total += scores.masked_fill(hidden, -torch.inf).softmax(dim=1)
        mean: np.ndarray = (total / (len(used) * HEADS * GROUP)).numpy()
        return mean


def measured(donor: Donor, slices: list[int], donor_id: str = "d", leanings: Leanings | None = None) -> Leanings:
    made = leanings or Leanings()
    tokens = donor.keys.shape[1]
    for start, end in zip([0, *slices], [*slices, tokens], strict=True):
        made.measure(donor, donor_id, start, IDS[start:end], tokens)
    return made


def run(donor_start: int, target_start: int, length: int, donor_id: str = "d") -> Run:
    return Run(donor_id, donor_start, target_start, length, ContextRisk(0, 0, 0.0))


@pytest.mark.parametrize("slices", [[], [64], [1, 40, 149]])
@pytest.mark.parametrize("reaches", [(None,) * LAYERS, (20, 20, None) * 4, (60,) * LAYERS])
def test_leaning_is_the_dense_attention_to_lost_context(slices: list[int], reaches: Sequence[int | None]) -> None:
    donor = Donor(reaches=reaches)
    runs = [run(64, 10, 32), run(112, 60, 30)]
    found = measured(donor, slices).of(runs, OTHER, 0)
    assert found is not None
    attention = donor.attention()
    for one in runs:
        lost = lost_context(one, runs)
        # Runs begin and end with a part: what is left is the rounding to bytes.
        exact = attention[one.donor_start : one.donor_start + one.length, : one.donor_start] @ lost
        assert np.abs(found[one.target_start : one.target_end] - exact).max() < 0.012
        assert found[one.target_start : one.target_end].max() > 0.05, "the oracle is not near 0"


def test_the_first_tokens_count_nothing() -> None:
    donor = Donor()
    donor.keys[:, :SINKS] = 0.0
    donor.queries.abs_()
    donor.keys[:, :SINKS] += 9.0  # everything attends to them
    found = measured(donor, []).of([run(64, 0, 80)], OTHER, 0)
    assert found is not None
    assert found.max() < 0.01


def test_the_pass_stops_at_the_last_layer_it_needs() -> None:
    donor = Donor()
    measured(donor, [])
    passes = -(-TOKENS // 40)
    assert donor.ran == passes * leaning_layers(LAYERS)[-1]


def test_a_donor_without_all_of_its_slices_has_none() -> None:
    donor, made = Donor(), Leanings()
    of_donor = [run(64, 0, 80)]
    made.measure(donor, "d", 0, IDS[0:50], TOKENS)
    assert made.of(of_donor, OTHER, 0) is None
    made.measure(donor, "d", 100, IDS[100:150], TOKENS)
    made.measure(donor, "d", 50, IDS[50:150], TOKENS)
    assert made.of(of_donor, OTHER, 0) is None, "the slice between was lost"
    measured(donor, [50], leanings=made)
    assert made.of(of_donor, OTHER, 0) is not None
    made.drop("d")
    assert made.of(of_donor, OTHER, 0) is None


def test_a_fault_in_a_slice_leaves_nothing_behind() -> None:
    donor, made = Donor(), Leanings()
    made.measure(donor, "d", 0, IDS[0:50], TOKENS)
    donor.compute = None  # type: ignore[assignment, method-assign]
    with pytest.raises(TypeError):
        made.measure(donor, "d", 50, IDS[50:100], TOKENS)
    made.measure(Donor(), "d", 100, IDS[100:150], TOKENS)
    assert made.of([run(64, 0, 80)], OTHER, 0) is None


def test_one_donor_without_leaning_is_enough_to_have_none() -> None:
    made = measured(Donor(), [])
    runs = [run(64, 0, 40), run(64, 50, 40, "other")]
    assert made.of(runs, OTHER, 0) is None
    measured(Donor(1), [], "other", made)
    assert made.of(runs, OTHER, 0) is not None
    assert made.of([], OTHER, 0) is None


def test_what_is_recomputed_before_a_run_is_not_lost() -> None:
    """The heads of both runs, 16 tokens each, are not loaded but are in the recipient."""
    donor = Donor()
    runs = [run(80, 26, 16), run(112, 90, 30)]
    ids = OTHER.copy()
    ids[10:42] = IDS[64:96]
    ids[74:120] = IDS[96:142]
    found = measured(donor, []).of(runs, ids, 0)
    assert found is not None
    attention = donor.attention()
    for one, lost in zip(runs, (range(SINKS, 64), range(SINKS, 64)), strict=True):
        exact = attention[one.donor_start : one.donor_start + one.length, list(lost)].sum(axis=1)
        assert np.abs(found[one.target_start : one.target_end] - exact).max() < 0.012
    plain = measured(donor, []).of(runs, OTHER, 0)
    assert plain is not None
    assert (plain[26:42] > found[26:42] + 0.05).all(), "recipients without that text have lost it"
