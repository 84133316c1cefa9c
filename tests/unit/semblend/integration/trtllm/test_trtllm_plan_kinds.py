from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semblend.contract import ContextRisk, DeclineReason, ReusePlan, Run, TokenRange
from semblend.integration.trtllm.plan_kinds import LoadPlan, PlanKind, Publication, classify, refusal

RISK = ContextRisk(0, 0, 0.0)
LAWFUL = {
    (PlanKind.DISCOVERY_ONLY, Publication.NOTHING, 0),
    (PlanKind.EXACT_PREFIX, Publication.EXACT_CACHE, 64),
    (PlanKind.REQUEST_LOCAL_PREFIX, Publication.REQUEST_LOCAL, 0),
    (PlanKind.REQUEST_LOCAL_SEGMENTED, Publication.REQUEST_LOCAL, 0),
}


@pytest.mark.parametrize(("kind", "publication", "tokens"), itertools.product(PlanKind, Publication, (0, 64)))
def test_only_lawful_pairs_of_kind_and_publication_can_be_built(
    kind: PlanKind, publication: Publication, tokens: int
) -> None:
    if (kind, publication, tokens) in LAWFUL:
        assert LoadPlan(kind, publication, "d", 0, tokens).tokens == tokens
    else:
        with pytest.raises(ValueError):
            LoadPlan(kind, publication, "d", 0, tokens)


def plan(boundary: int, donor_start: int, target_start: int, length: int) -> ReusePlan:
    end = target_start + length
    hole = (TokenRange(boundary, target_start),) if target_start > boundary else ()
    run = Run("d", donor_start, target_start, length, RISK)
    return ReusePlan(end + 10, boundary, (TokenRange(boundary, end),), (run,), hole)


@given(st.integers(0, 6), st.integers(0, 200), st.integers(0, 100), st.integers(16, 300), st.integers(0, 500))
def test_a_promise_is_whole_blocks_of_tokens_the_donor_begins_with(
    blocks: int, donor_start: int, gap: int, length: int, shared: int
) -> None:
    boundary = blocks * 16
    planned = plan(boundary, donor_start, boundary + gap, length)
    load = classify(planned, lambda _: shared, 16)
    if load.kind is PlanKind.EXACT_PREFIX:
        assert refusal(load) is None
        assert planned.runs[0].shift == 0
        end = load.boundary + load.tokens
        assert load.boundary == boundary
        assert end % 16 == 0
        assert boundary < end <= shared
        assert end < planned.prompt_tokens
    else:
        declined = refusal(load)
        assert declined is not None
        assert declined.reason is DeclineReason.UNSUPPORTED_MODE
        assert (load.kind is PlanKind.REQUEST_LOCAL_SEGMENTED) == bool(planned.compute)


def test_a_boundary_inside_a_block_promises_nothing() -> None:
    assert classify(plan(8, 8, 8, 200), lambda _: 208, 16).kind is PlanKind.REQUEST_LOCAL_PREFIX
