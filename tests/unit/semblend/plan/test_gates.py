from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from sembase.errors import ConfigurationError, ContractError, DonorError
from semblend import Decline, DeclineReason, Gates, Namespace, Planner, ReusePlan, Settings
from semblend.align.runs import equal_runs
from semblend.contract import UNKNOWN, Outcome
from semblend.plan.compose import DIFFERING
from semblend.plan.risk import in_context

NS = Namespace(tenant="a", model="m")
DOCUMENT = np.random.default_rng(3).integers(0, 50_000, 1000).astype(np.uint32)


def noise(length: int, seed: int = 0) -> NDArray[np.uint32]:
    return np.random.default_rng(100 + seed).integers(0, 50_000, length).astype(np.uint32)


def planner(gates: Gates | None = None, **switches: Any) -> Planner:
    built = Planner(settings=Settings(embedder="none", **switches), gates=gates, budget_bytes=1 << 22)
    built.register("doc", np.concatenate([noise(30, 1), DOCUMENT]), NS)
    return built


RECIPIENT = np.concatenate([noise(100, 2), DOCUMENT, noise(50, 3)])


def reason(answer: ReusePlan | Decline) -> DeclineReason:
    assert isinstance(answer, Decline)
    return answer.reason


def test_a_document_behind_another_instruction() -> None:
    plan = planner().plan(RECIPIENT, NS)
    assert isinstance(plan, ReusePlan)
    (run,) = plan.runs
    assert (run.donor_id, run.donor_start, run.target_start, run.length, run.shift) == ("doc", 30, 100, 1000, 70)
    assert [(c.start, c.end) for c in plan.compute] == [(0, 100)]
    assert run.risk.head_share == 1.0
    assert run.risk.mean_share == pytest.approx(np.mean(100 / (100 + np.arange(1000))), abs=0.01)


def test_each_refusal_has_its_reason() -> None:
    unknown = Namespace(tenant="a", model="m", revision=UNKNOWN)
    assert reason(planner(enabled=False).plan(RECIPIENT, NS)) is DeclineReason.DISABLED
    assert reason(planner().plan(RECIPIENT, unknown)) is DeclineReason.NAMESPACE_UNKNOWN
    assert reason(planner().plan(RECIPIENT[:63], NS)) is DeclineReason.PROMPT_TOO_SHORT
    assert reason(planner().plan(RECIPIENT, NS, exact_prefix_tokens=1149)) is DeclineReason.EXACT_PREFIX_COVERS
    assert reason(planner().plan(noise(500), NS)) is DeclineReason.NO_CANDIDATE
    assert reason(planner(Gates(min_reuse_ratio=0.9)).plan(RECIPIENT, NS)) is DeclineReason.BELOW_MIN_REUSE_RATIO
    assert reason(planner(Gates(max_context_share=0.2)).plan(RECIPIENT, NS)) is DeclineReason.CONTEXT_RISK
    found = planner(discovery_only=True).plan(RECIPIENT, NS)
    assert reason(found) is DeclineReason.DISCOVERY_ONLY
    assert isinstance(found, Decline)
    assert found.outcome is Outcome.SEMANTIC_DISCOVERY_ONLY
    assert [d.donor_id for d in found.discoveries] == ["doc"]
    assert reason(planner(discovery_only=True).plan(noise(500), NS)) is DeclineReason.NO_CANDIDATE


def test_the_limits_of_a_gate_are_inclusive() -> None:
    share = 1000 / len(RECIPIENT)
    assert isinstance(planner(Gates(min_reuse_ratio=share)).plan(RECIPIENT, NS), ReusePlan)
    risk = planner().plan(RECIPIENT, NS)
    assert isinstance(risk, ReusePlan)
    ceiling = risk.runs[0].risk.mean_share
    assert isinstance(planner(Gates(max_context_share=ceiling)).plan(RECIPIENT, NS), ReusePlan)


def test_a_long_run_is_reused_whatever_precedes_it() -> None:
    plan = planner(Gates(max_context_share=0.2, min_moved_tokens=1000)).plan(RECIPIENT, NS)
    assert isinstance(plan, ReusePlan)
    assert plan.runs == planner().plan(RECIPIENT, NS).runs  # type: ignore[union-attr]
    refused = planner(Gates(max_context_share=0.2, min_moved_tokens=1001)).plan(RECIPIENT, NS)
    assert reason(refused) is DeclineReason.CONTEXT_RISK
    assert isinstance(refused, Decline)
    assert refused.detail.endswith("max_context_share is 0.200 for runs below 1001 tokens")
    # What is computed at the head of a run does not count.
    both = Gates(max_context_share=0.2, min_moved_tokens=1000, boundary_recompute_tokens=16)
    assert reason(planner(both).plan(RECIPIENT, NS)) is DeclineReason.CONTEXT_RISK
    assert isinstance(planner(replace(both, min_moved_tokens=984)).plan(RECIPIENT, NS), ReusePlan)


def test_boundary_tokens_are_computed_not_loaded() -> None:
    plan = planner(Gates(boundary_recompute_tokens=16)).plan(RECIPIENT, NS)
    assert isinstance(plan, ReusePlan)
    assert (plan.runs[0].target_start, plan.runs[0].donor_start, plan.runs[0].length) == (116, 46, 984)
    assert [(c.start, c.end) for c in plan.compute] == [(0, 116)]
    everything = planner(Gates(boundary_recompute_tokens=1000)).plan(RECIPIENT, NS)
    assert reason(everything) is DeclineReason.NO_CANDIDATE


def test_behind_a_small_edit_few_boundary_tokens_are_computed() -> None:
    edited = np.concatenate([noise(30, 1), DOCUMENT[:800], noise(8, 5), DOCUMENT[800:]])
    plan = planner(Gates(boundary_recompute_tokens=32)).plan(edited, NS)
    assert isinstance(plan, ReusePlan)
    behind = plan.runs[1]
    share = 8 / 838  # of the tokens before it, eight differ
    assert behind.target_start == 838 + math.ceil(32 * math.sqrt(share))
    assert behind.donor_start == 830 + math.ceil(32 * math.sqrt(share))


def test_a_true_prefix_has_no_boundary_to_recompute() -> None:
    built = planner(Gates(boundary_recompute_tokens=16))
    plan = built.plan(np.concatenate([noise(30, 1), DOCUMENT, noise(40)]), NS)
    assert isinstance(plan, ReusePlan)
    assert (plan.runs[0].target_start, plan.runs[0].length, plan.runs[0].risk.head_share) == (0, 1030, 0.0)


def test_few_tokens_after_differing_context_are_computed() -> None:
    """The exact part is kept: loading it changes no answer."""
    edited = np.concatenate([noise(30, 1), DOCUMENT[:800], noise(8, 5), DOCUMENT[800:], noise(50)])
    refused = planner(Gates(min_inexact_tokens=201)).plan(edited, NS)
    assert isinstance(refused, ReusePlan)
    assert [(run.target_start, run.length, run.is_exact) for run in refused.runs] == [(0, 830, True)]
    reused = planner(Gates(min_inexact_tokens=200)).plan(edited, NS)
    assert isinstance(reused, ReusePlan)
    assert [(run.target_start, run.length, run.is_exact) for run in reused.runs] == [(0, 830, True), (838, 200, False)]
    nothing = planner(Gates(min_inexact_tokens=201)).plan(edited, NS, exact_prefix_tokens=830)
    assert isinstance(nothing, Decline)
    assert nothing.reason == "too_few_inexact"
    assert nothing.detail == "200 tokens after differing context; min_inexact_tokens is 201"


@given(st.data())
def test_a_plan_has_no_or_enough_inexact_tokens(data: st.DataObject) -> None:
    least = data.draw(st.integers(0, 700), "least")
    cuts = sorted(data.draw(st.lists(st.integers(0, 1000), max_size=4), "edits"))
    parts = [noise(30, data.draw(st.sampled_from([1, 2]), "head"))]
    for start, end in zip([0, *cuts], [*cuts, 1000], strict=True):
        parts += [DOCUMENT[start:end], noise(3, 200 + start)]
    prompt = np.concatenate(parts)
    prefix = data.draw(st.integers(0, len(prompt) - 2), "prefix")
    closed = planner(Gates(min_inexact_tokens=least, min_reuse_ratio=0.0)).plan(prompt, NS, exact_prefix_tokens=prefix)
    opened = planner(Gates(min_reuse_ratio=0.0)).plan(prompt, NS, exact_prefix_tokens=prefix)
    found = opened.runs if isinstance(opened, ReusePlan) else ()
    inexact = sum(run.length for run in found if not run.is_exact)
    kept = closed.runs if isinstance(closed, ReusePlan) else ()
    assert kept == (found if inexact >= least else tuple(run for run in found if run.is_exact))


def test_without_the_strict_boundary_only_the_runs_are_claimed() -> None:
    two = np.concatenate([noise(100, 2), DOCUMENT[:400], noise(80, 4), DOCUMENT[500:], noise(20)])
    strict = planner().plan(two, NS)
    loose = planner(strict_prefix_boundary=False).plan(two, NS)
    assert isinstance(strict, ReusePlan)
    assert isinstance(loose, ReusePlan)
    assert loose.runs == strict.runs
    assert [(c.start, c.end) for c in strict.claimed] == [(0, 1080)]
    assert [(c.start, c.end) for c in loose.claimed] == [(100, 500), (580, 1080)]
    assert loose.compute == ()


def test_exact_first() -> None:
    plan = planner().plan(RECIPIENT, NS, exact_prefix_tokens=300)
    assert isinstance(plan, ReusePlan)
    assert plan.runs[0].target_start == 300
    assert plan.runs[0].donor_start == 230
    assert plan.claimed[0].start == 300


def test_context_shared_by_the_exact_prefix_lowers_the_risk() -> None:
    built = Planner(settings=Settings(embedder="none"), budget_bytes=1 << 22)
    system = noise(200, 9)
    built.register("doc", np.concatenate([system, noise(50, 1), DOCUMENT]), NS)
    plan = built.plan(np.concatenate([system, noise(60, 2), DOCUMENT, noise(5)]), NS, exact_prefix_tokens=200)
    assert isinstance(plan, ReusePlan)
    assert plan.runs[0].risk.preceding_tokens == 260
    assert plan.runs[0].risk.differing_tokens == 60


@pytest.mark.parametrize("prefix", [0, 101, 128, 200, 500, 1000, 1090])
def test_the_exact_prefix_does_not_change_what_differs(prefix: int) -> None:
    plan = planner().plan(RECIPIENT, NS, exact_prefix_tokens=prefix)
    assert isinstance(plan, ReusePlan)
    assert plan.runs[-1].risk.differing_tokens == 100


def test_pieces_of_one_donor_in_order_share_context() -> None:
    runs = np.array([[0, 0, 0, 100], [0, 120, 110, 100], [0, 10, 220, 50]], np.int64)
    # The last one follows ten tokens of the first; the other 90 of the first come after it in the donor.
    assert in_context(runs, [0])[:, DIFFERING].tolist() == [0, 20, 210]


def test_repeated_text_is_not_counted_as_context_twice() -> None:
    """Donor U W W Y, recipient V U W Y: Y is at its donor's position, after other tokens."""
    u, v, w, y = (noise(100, seed) for seed in (11, 12, 13, 14))
    built = planner()
    built.register("repeats", np.concatenate([u, w, w, y]), NS)
    recipient = np.concatenate([v, u, w, y, noise(5)])
    plan = built.plan(recipient, NS)
    assert isinstance(plan, ReusePlan)
    assert all(run.risk.differing_tokens for run in plan.runs)
    assert built.shared_prefix("repeats", recipient) == 0


def test_what_cannot_be_a_donor_is_refused() -> None:
    built = planner()
    with pytest.raises(DonorError, match="no tokens"):
        built.register("empty", [], NS)
    with pytest.raises(DonorError, match="revision"):
        built.register("d", DOCUMENT, Namespace(tenant="a", model="m", revision=UNKNOWN))
    with pytest.raises(DonorError, match="budget"):
        built.register("huge", np.zeros(1 << 20, np.uint32), NS)
    with pytest.raises(ContractError, match="at least 0"):
        built.register("d", [1, -2], NS)
    with pytest.raises(ContractError, match="2\\*\\*31"):
        built.plan([2**31] * 100, NS)
    with pytest.raises(ContractError, match="integers"):
        built.plan(["a"] * 100, NS)  # type: ignore[list-item]
    with pytest.raises(ConfigurationError, match="minimum"):
        Planner(settings=Settings(embedder="none"), budget_bytes=1000)
    with pytest.raises(ConfigurationError):
        Gates(min_reuse_ratio=1.5)
    with pytest.raises(ConfigurationError):
        Gates(min_inexact_tokens=-1)
    with pytest.raises(ConfigurationError):
        Settings(min_similarity=3)
    with pytest.raises(ContractError, match="Namespace"):
        built.plan(DOCUMENT, "a")  # type: ignore[arg-type]
    with pytest.raises(ContractError, match="negative"):
        built.plan(DOCUMENT, NS, exact_prefix_tokens=-1)


def test_lists_and_arrays_of_any_integer_type_give_one_answer() -> None:
    built = planner()
    expected = built.plan(RECIPIENT, NS)
    assert built.plan(RECIPIENT.tolist(), NS) == expected
    assert built.plan(RECIPIENT.astype(np.int64), NS) == expected
    assert built.plan(tuple(RECIPIENT.tolist()), NS) == expected


def naive_differing(runs: list[tuple[int, int, int, int]], prefix: list[int]) -> list[int]:
    """The same definition, written as a double loop."""
    shared: list[int] = []
    for j, (donor, donor_start, target_start, _) in enumerate(runs):
        chains = [min(prefix[donor], donor_start, target_start)]
        for i, (other, other_donor, other_target, length) in enumerate(runs[:j]):
            between = min(length, donor_start - other_donor, target_start - other_target)
            if other == donor and between > 0:
                chains.append(shared[i] + between)
        shared.append(max(chains))
    return [max(run[1], run[2]) - same for run, same in zip(runs, shared, strict=True)]


@given(
    rows=st.lists(
        st.tuples(st.integers(0, 2), st.integers(0, 60), st.integers(0, 60), st.integers(1, 12)), max_size=12
    ),
    prefix=st.lists(st.integers(0, 20), min_size=3, max_size=3),
)
def test_differing_context_agrees_with_its_definition(rows: list[tuple[int, int, int, int]], prefix: list[int]) -> None:
    runs = sorted(rows, key=lambda run: (run[2], -run[3]))
    found = in_context(np.array(runs, np.int64).reshape(-1, 4), prefix)
    assert found[:, DIFFERING].tolist() == naive_differing(runs, prefix)


@given(st.lists(st.integers(0, 3), max_size=14), st.lists(st.integers(0, 3), max_size=14))
def test_shared_context_is_a_common_subsequence(donor: list[int], recipient: list[int]) -> None:
    """No more tokens count as shared than donor and recipient have in common, in the same order, before the run."""
    runs = equal_runs(donor, recipient, 1)
    rows = np.column_stack([np.zeros(len(runs), np.int64), runs])
    for _, d, r, _, differing in in_context(rows, [0]).tolist():
        assert max(d, r) - differing <= longest_common_subsequence(donor[:d], recipient[:r])


def longest_common_subsequence(one: list[int], other: list[int]) -> int:
    lengths = [0] * (len(other) + 1)
    for a in one:
        before = 0
        for at, b in enumerate(other, start=1):
            before, lengths[at] = lengths[at], before + 1 if a == b else max(lengths[at], lengths[at - 1])
    return lengths[-1]
