from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.semblend.donors.announcements import KEY, announced, batch, words

from sembase.errors import ConfigurationError
from semblend.contract import Decline, DeclineReason, FaultContained, Outcome
from semblend.contract.donor_event import DonorRelocated, DonorsPurged, DonorWithdrawn, GatesAnnounced, GenerationReset
from semblend.contract.namespace import UNKNOWN
from semblend.integration.dynamo.provider import (
    PlacementEvidence,
    SemanticEvidenceProvider,
    WorkerEvidence,
)
from semblend.integration.dynamo.router import Placement, PlacementRule, SemanticRouter, exact_tokens, place
from semblend.plan.gates import ADAPTER_GATES, Gates

A, B = (1, 0), (2, 0)
NONE = {A: 0, B: 0}
GATES = Gates()
DOCUMENT = words(1, 1200)
REQUEST = np.concatenate([words(2, 60), DOCUMENT, words(3, 40)])


def provider(gates: Gates = GATES, **options: Any) -> SemanticEvidenceProvider:
    made = SemanticEvidenceProvider(KEY, **options)
    for worker_id in (1, 2):
        made.apply(worker_id, batch(GatesAnnounced(asdict(gates))))
    made.apply(2, batch(announced("d", np.concatenate([words(4, 90), DOCUMENT]))))
    return made


def by_worker(answer: PlacementEvidence | Decline) -> dict[tuple[int, int], WorkerEvidence]:
    assert isinstance(answer, PlacementEvidence), answer
    return {entry.worker: entry for entry in answer.workers}


def reason(answer: PlacementEvidence | Decline) -> DeclineReason:
    assert isinstance(answer, Decline)
    return answer.reason


def test_the_worker_that_holds_the_content_is_named_with_what_it_could_spare() -> None:
    found = by_worker(provider().evidence(REQUEST, NONE))
    assert found[A] == WorkerEvidence(A, 0, 0, ())
    assert found[B].donor_ids == ("d",)
    assert len(DOCUMENT) - 64 <= found[B].semantic_tokens <= len(DOCUMENT)


def test_only_what_lies_beyond_a_workers_own_exact_overlap_counts() -> None:
    whole = by_worker(provider().evidence(REQUEST, NONE))[B].semantic_tokens
    rest = by_worker(provider().evidence(REQUEST, {A: 0, B: 660}))[B]
    assert rest.exact_tokens == 660
    assert whole - 600 - 64 <= rest.semantic_tokens <= len(REQUEST) - 660


@pytest.mark.parametrize(
    ("options", "asked", "expected"),
    [
        ({"enabled": False}, {}, DeclineReason.DISABLED),
        ({}, {"cache_salt": UNKNOWN}, DeclineReason.NAMESPACE_UNKNOWN),
        ({}, {"lora": UNKNOWN}, DeclineReason.NAMESPACE_UNKNOWN),
        ({"require_salt": True}, {}, DeclineReason.NAMESPACE_UNKNOWN),
        ({}, {"cache_salt": "other"}, DeclineReason.NO_CANDIDATE),
        ({}, {"cache_salt": ""}, DeclineReason.NO_CANDIDATE),
        ({}, {"lora": "adapter"}, DeclineReason.NO_CANDIDATE),
        ({"gates": Gates(min_reuse_ratio=1.0)}, {}, DeclineReason.BELOW_MIN_REUSE_RATIO),
        ({"gates": Gates(min_prompt_tokens=5000)}, {}, DeclineReason.PROMPT_TOO_SHORT),
    ],
)
def test_every_refusal_has_its_reason(options: dict[str, Any], asked: dict[str, Any], expected: DeclineReason) -> None:
    assert reason(provider(**options).evidence(REQUEST, NONE, **asked)) is expected


def test_an_exact_prefix_that_covers_the_prompt_ends_the_search() -> None:
    assert reason(provider().evidence(REQUEST, {A: len(REQUEST) - 1, B: 0})) is DeclineReason.EXACT_PREFIX_COVERS


def test_what_a_worker_takes_back_is_gone() -> None:
    for event in (DonorWithdrawn("d", "x"), DonorsPurged(None, "x"), GenerationReset(1)):
        known = provider()
        known.apply(2, batch(event))
        assert reason(known.evidence(REQUEST, NONE)) is DeclineReason.NO_CANDIDATE
        assert len(known.index) == 0
    known = provider()
    known.apply(2, batch(DonorRelocated("d", "storage"), DonorsPurged("another namespace", "x")))
    known.apply(1, batch(DonorWithdrawn("d", "another worker's")))
    known.apply(2, batch(GenerationReset(1), rank=1))
    assert by_worker(known.evidence(REQUEST, NONE))[B].semantic_tokens
    known.forget(2)
    assert len(known.index) == 0


def test_each_worker_counts_by_the_gates_it_announced() -> None:
    known = provider()
    donor = announced("d", np.concatenate([words(4, 90), DOCUMENT]))
    for worker_id, gates in ((3, ADAPTER_GATES), (4, Gates(min_reuse_ratio=1.0))):
        known.apply(worker_id, batch(GatesAnnounced(asdict(gates)), donor))
    known.apply(5, batch(donor))  # an older publisher: the adapters' defaults are assumed
    found = by_worker(known.evidence(REQUEST, {B: 0, (3, 0): 0, (4, 0): 0, (5, 0): 0}))
    open_tokens, gated_tokens, none, assumed = (entry.semantic_tokens for entry in found.values())
    assert open_tokens == gated_tokens + ADAPTER_GATES.boundary_recompute_tokens
    assert none == 0
    assert assumed == gated_tokens
    assert known.gates((5, 0)) == ADAPTER_GATES


def test_a_fault_is_a_decline_and_is_reported() -> None:
    faults: list[FaultContained] = []
    broken = provider(report=faults.append)
    assert reason(broken.evidence("not tokens", NONE)) is DeclineReason.INTERNAL_ERROR  # type: ignore[arg-type]
    assert [fault.stage for fault in faults] == ["evidence"]


def longest_common(donor: list[int], tokens: list[int], least: int) -> set[int]:
    """Positions of ``tokens`` in a common substring of at least ``least`` tokens: dynamic programming, no anchors."""
    covered: set[int] = set()
    before = [0] * (len(donor) + 1)
    for end, token in enumerate(tokens, 1):
        row = [0] * (len(donor) + 1)
        for column, other in enumerate(donor, 1):
            if token == other:
                row[column] = before[column - 1] + 1
                if row[column] >= least:
                    covered.update(range(end - row[column], end))
        before = row
    return covered


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(20, 200)), min_size=1, max_size=4), st.integers(0, 90))
def test_evidence_never_exceeds_what_is_equal_and_misses_little_of_it(
    parts: list[tuple[int, int]], offset: int
) -> None:
    donor = words(7, 500)
    pieces = [donor[(n * 97 + offset) % 300 :][:length] if n % 2 else words(n + 50, length) for n, length in parts]
    tokens = np.concatenate([*pieces, words(99, 70)])
    known = SemanticEvidenceProvider(KEY, gates=Gates(min_reuse_ratio=0.0))
    known.apply(2, batch(announced("d", donor)))
    answer = known.evidence(tokens, {B: 0})
    found = by_worker(answer)[B].semantic_tokens if isinstance(answer, PlacementEvidence) else 0
    truth = longest_common(donor.tolist(), tokens.tolist(), 32)
    assert found <= len(truth)
    long_runs = longest_common(donor.tolist(), tokens.tolist(), 128)
    assert found >= len(long_runs) - 64 * sum(length >= 128 for _, length in parts)


def evidence(*workers: tuple[int, int]) -> PlacementEvidence:
    entries = tuple(
        WorkerEvidence((number, 0), exact, semantic, ()) for number, (exact, semantic) in enumerate(workers)
    )
    return PlacementEvidence(2000, entries)


@pytest.mark.parametrize(
    ("answer", "outcome", "worker"),
    [
        (evidence((0, 0), (0, 1500)), Outcome.SEMANTIC_PLACEMENT, (1, 0)),
        (evidence((1500, 0), (0, 1600)), Outcome.EXACT_PREFIX, None),
        (evidence((600, 0), (512, 1200)), Outcome.SEMANTIC_PLACEMENT, (1, 0)),
        (evidence((0, 300), (0, 0)), Outcome.SEMANTIC_DISCOVERY_ONLY, None),
        (Decline(DeclineReason.NO_CANDIDATE), Outcome.COLD_FALLBACK, None),
        (Decline(DeclineReason.INTERNAL_ERROR), Outcome.COLD_FALLBACK, None),
    ],
)
def test_placement_prefers_exact_and_needs_a_gain(
    answer: PlacementEvidence | Decline, outcome: Outcome, worker: tuple[int, int] | None
) -> None:
    placement = place(answer, PlacementRule())
    assert (placement.outcome, placement.worker) == (outcome, worker)


@given(st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 3000)), min_size=1, max_size=5), st.floats(0, 0.99))
def test_expected_tokens_never_beat_as_many_exact_ones(workers: list[tuple[int, int]], confidence: float) -> None:
    chosen = place(evidence(*workers), PlacementRule(confidence))
    if chosen.worker is not None:
        exact, semantic = workers[chosen.worker[0]]
        assert exact + semantic > max(entry[0] for entry in workers)


def test_rules_that_would_let_expectation_win_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="exact tokens win"):
        PlacementRule(confidence=1.0)


class FakeRouter:
    """``dynamo.llm.KvRouter`` as 1.6.1 answers; the real one is in ``tests/engines/dynamo``."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []

    async def get_overlap_scores(
        self, token_ids: list[int], *, lora_name: str | None = None, cache_namespace: str | None = None
    ) -> dict[str, Any]:
        rows = [{"worker_id": n, "dp_rank": 0, "device_blocks": 0, "host_pinned_blocks": 9} for n in (1, 2)]
        return {"block_size": 16, "workers": rows}

    async def generate(self, token_ids: list[int], model: str, **options: Any) -> AsyncIterator[Any]:
        self.asked.append(options)

        async def tokens() -> AsyncIterator[int]:
            yield 1

        return tokens()


def test_a_placement_pins_the_worker_and_no_placement_changes_nothing() -> None:
    async def run() -> tuple[Placement, Placement, list[dict[str, Any]]]:
        router = FakeRouter()
        semantic = SemanticRouter(router, provider())
        ids = REQUEST.tolist()
        placed = await semantic.placement(ids, cache_salt=None)
        untold = await semantic.placement(ids)
        for placement in (placed, untold):
            stream = await semantic.generate(ids, "m", placement=placement, stop_conditions={"max_tokens": 1})
            assert [token async for token in stream] == [1]
        return placed, untold, router.asked

    placed, untold, asked = asyncio.run(run())
    assert placed.outcome is Outcome.SEMANTIC_PLACEMENT
    assert asked[0] == {"stop_conditions": {"max_tokens": 1}, "worker_id": 2, "dp_rank": 0}
    assert untold.reason == "namespace_unknown"
    assert asked[1] == {"stop_conditions": {"max_tokens": 1}}


def test_exact_overlap_is_what_the_device_holds() -> None:
    row = {"worker_id": 2**63 + 5, "dp_rank": 1, "device_blocks": 3, "host_pinned_blocks": 40}
    assert exact_tokens({"block_size": 16, "workers": [row]}) == {(2**63 + 5, 1): 48}
