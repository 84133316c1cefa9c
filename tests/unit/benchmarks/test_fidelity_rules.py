"""Selection rules on trial: chosen by hand, ranked layers against their definition."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from benchmarks.fidelity.compare_rules import BASE, COLUMNS, lines_of
from benchmarks.fidelity.rules import RULES, only, overlap, parse_rule, ranked_layers
from benchmarks.fidelity.signals import Signals
from hypothesis import given
from hypothesis import strategies as st

from sembase.errors import ConfigurationError
from semblend.plan.selection import POLICIES, Evidence, Selection, choose

LAYERS, LENGTH = 3, 40
NAMES = ("question", "norm", "digest", "repeat", "read", "drift")


def two_runs(seed: int = 0) -> Signals:
    """Two runs with a gap of ten tokens between them, and random signals."""
    random = np.random.default_rng(seed)
    positions = np.concatenate([np.arange(5, 5 + LENGTH), np.arange(55, 55 + LENGTH)])
    distance = np.tile(np.arange(LENGTH), 2)
    shape = (LAYERS, 2 * LENGTH)
    return Signals(
        positions,
        distance,
        np.zeros(2 * LENGTH),
        random.random((LAYERS, 2, 2 * LENGTH)).astype(np.float32),
        deviation=random.random(2 * LENGTH).astype(np.float32),
        layered={name: random.random(shape).astype(np.float32) for name in NAMES},
        middle=(1, 0, 2),
    )


@given(st.sampled_from(sorted(RULES)), st.sampled_from([0.05, 0.1, 0.2, 0.5]))
def test_every_rule_spends_its_whole_budget_on_reused_positions(name: str, fraction: float) -> None:
    signals = two_runs()
    chosen = parse_rule(f"{name}@{fraction}").choose(signals)
    assert len(chosen) == int(fraction * len(signals.positions))
    assert set(chosen.tolist()) <= set(signals.positions.tolist())
    assert (np.diff(chosen) > 0).all()


@given(st.sampled_from(sorted(RULES)), st.sampled_from([1, 8, 39, 40]))
def test_heads_are_recomputed_anyway_and_the_rule_sees_only_the_rest(name: str, heads: int) -> None:
    signals = two_runs()
    chosen = set(parse_rule(f"{name}@0.5+{heads}").choose(signals).tolist())
    head = set(signals.positions[signals.distance < heads].tolist())
    rest = signals.distance >= heads
    assert head <= chosen <= set(signals.positions.tolist())
    assert len(chosen - head) == rest.sum() // 2
    if rest.any():
        alone = only(signals, rest)
        best = np.argsort(-RULES[name](alone), kind="stable")[: rest.sum() // 2]
        assert chosen - head == set(alone.positions[best].tolist())


def test_the_layer_that_asks_as_the_oracle_reads_is_ranked_first() -> None:
    items = [two_runs(seed) for seed in (1, 2, 3)]
    made = []
    for signals in items:
        question = signals.layered["question"].copy()
        question[2] = RULES["oracle_both"](signals)
        made.append(replace(signals, layered={**signals.layered, "question": question}))
    assert ranked_layers(made)[0] == 2
    assert ranked_layers(made, "drift", "oracle_drift")[0] == max(
        range(LAYERS), key=lambda at: np.mean([overlap(s.of("drift", (at,)), s.of("drift"), 0.15) for s in made])
    )
    assert overlap(np.arange(10.0), np.arange(10.0), 0.3) == 1.0
    assert overlap(np.arange(10.0), -np.arange(10.0), 0.3) == 0.0


@given(st.sampled_from(sorted(set(RULES) & set(POLICIES.names()))), st.integers(0, 20))
def test_a_rule_that_deployments_have_chooses_what_they_choose(name: str, seed: int) -> None:
    signals = two_runs(seed)
    chosen = parse_rule(f"{name}@0.15").choose(signals)
    evidence = Evidence(
        signals.positions,
        signals.distance,
        signals.context_share,
        signals.attention,
    )
    assert chosen.tolist() == choose(Selection(name, 0.15), evidence).tolist()


def test_every_policy_of_deployments_is_among_the_rules() -> None:
    assert set(POLICIES.names()) <= set(RULES)


@pytest.mark.parametrize("text", ["unknown@0.1", "first", "first@2", "first@0.1+x"])
def test_a_rule_that_cannot_be_read_is_an_error(text: str) -> None:
    with pytest.raises(ConfigurationError, match="invalid rule"):
        parse_rule(text)


def test_rules_are_compared_item_by_item_with_the_default_at_the_same_fraction() -> None:
    def row(arm: str, item: str, kl: float) -> dict[str, object]:
        return {"arm": arm, "item": item, "kl": [kl], "answer_kl": [kl]} | {
            "computed_tokens": 3,
            "claimed_tokens": 10,
            "groups": 2,
        }

    rows = [row(f"{BASE}@0.15", item, 0.4) for item in "abc"]
    rows += [row(f"{BASE}@0.05", item, 0.9) for item in "abc"]
    rows += [row("norm@0.15", "a", 0.1), row("norm@0.15", "b", 0.5), row("norm@0.1", "a", 0.1)]
    lines = {str(line[0]): dict(zip(COLUMNS, line, strict=True)) for line in lines_of(rows)}
    arm = lines["norm@0.15"]
    assert (arm["items"], arm["computed"], arm["better"]) == (2, "30.0%", "1 of 2")
    assert str(arm["against the default"]).startswith("-0.1000")  # of items a and b: -0.3 and +0.1
    assert lines["norm@0.1"]["better"] is None  # the default was not measured at that fraction
    assert lines[f"{BASE}@0.05"]["against the default"] == "+0.0000 [+0.0000, +0.0000]"
