"""Which pages of a donor a plan needs, and what stands in for the rest."""

from __future__ import annotations

import numpy as np
import pytest
from tests.unit.semblend.fleet.fleet_donors import SHAPE, tokens_of

from semblend import Gates, Namespace, Planner, ReusePlan, Settings
from semblend.contract import ContextRisk, Run
from semblend.fleet.donor_object import ObjectForm
from semblend.fleet.donor_parts import NO_TOKEN, DonorPart, used_parts
from semblend.fleet.suggestions import RemoteDonor

DONOR = RemoteDonor("d", tokens_of(1, 1_000))


def run(start: int, length: int, donor_id: str = "d") -> Run:
    return Run(donor_id, start, 0, length, ContextRisk(0, 0, 0.0))


def test_the_pages_that_runs_touch_are_read_and_no_others() -> None:
    (part,) = used_parts([DONOR, RemoteDonor("other", tokens_of(2, 500))], [run(70, 100), run(600, 10)])
    assert part.ranges == ((64, 192), (576, 640))
    form = ObjectForm(SHAPE, 1_000)
    assert part.read_bytes(SHAPE) == form.head_bytes + 192 * SHAPE.token_bytes
    assert (part.tokens[64:192] == DONOR.tokens[64:192]).all()
    assert (part.tokens[192:576] == NO_TOKEN).all()
    assert len(part.tokens) == 1_000


def test_the_last_page_ends_with_the_donor() -> None:
    (part,) = used_parts([DONOR], [run(970, 20)])
    assert part.ranges == ((960, 1_000),)


@pytest.mark.parametrize(("length", "is_whole"), [(700, False), (960, True)])
def test_a_donor_that_is_used_nearly_whole_is_fetched_whole(length: int, is_whole: bool) -> None:
    (part,) = used_parts([DONOR], [run(0, length)])
    assert (part.ranges == ()) == is_whole
    if is_whole:
        assert part.tokens is DONOR.tokens
        assert part.read_bytes(SHAPE) == ObjectForm(SHAPE, 1_000).total_bytes


def test_what_was_not_fetched_is_never_planned() -> None:
    gates = Gates(min_run_tokens=64, min_reuse_ratio=0.0, boundary_recompute_tokens=0, max_context_share=1.0)
    planner = Planner(settings=Settings(embedder="none"), gates=gates)
    namespace = Namespace(tenant="t", model="m")
    planner.register("part", DonorPart(DONOR, ((256, 512),)).tokens, namespace)
    plan = planner.plan(np.concatenate([DONOR.tokens, tokens_of(3, 20)]), namespace)
    assert isinstance(plan, ReusePlan)
    assert [(each.donor_start, each.length) for each in plan.runs] == [(256, 256)]
