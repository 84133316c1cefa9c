"""Offline metrics: what an exact cache covers, what the planner proposes beyond it, and how long planning takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from sembench.metrics.base import (
    Figure,
    Metric,
    Needs,
    fraction,
    fraction_of_blocks,
    fraction_of_requests,
    fraction_of_tokens,
    percentile,
    ratio_of_sums,
    total,
)
from sembench.metrics.rows import PlanRow, RequestRow
from semblend.contract import Evidence


def _lift(row: RequestRow) -> tuple[int, int] | None:
    if row.plan is None or row.exact_hit_blocks is None:
        return None
    return row.plan.eligible_blocks - row.exact_hit_blocks, row.total_blocks


def _beyond_prefix(row: RequestRow) -> tuple[int, int] | None:
    if row.plan_beyond_prefix_tokens is None or row.exact_prefix_tokens is None:
        return None
    return row.plan_beyond_prefix_tokens, row.prompt_tokens - row.exact_prefix_tokens


def _context_share(row: RequestRow) -> tuple[float, int] | None:
    if row.plan is None or row.plan.mean_context_share is None:
        return None
    return row.plan.mean_context_share * row.plan.planned_tokens, row.plan.planned_tokens


def _unverified(rows: Sequence[RequestRow]) -> Figure | None:
    plans = [row.plan for row in rows if row.plan is not None]
    wrong = sum(plan.unverified_tokens for plan in plans)
    return fraction(wrong, wrong + sum(plan.planned_tokens for plan in plans), len(plans))


def _changed(row: RequestRow) -> tuple[int, int] | None:
    if row.changed_tokens is None or row.changed_planned_tokens is None:
        return None
    return row.changed_planned_tokens, row.changed_tokens


def _embedder_adds(rows: Sequence[RequestRow], count: Callable[[PlanRow, PlanRow], int]) -> Figure | None:
    """``count`` compares the plan made with the embedder and the one made without it."""
    return total(count(row.plan, row.token_plan) for row in rows if row.plan is not None and row.token_plan is not None)


def _plan_ms(rows: Sequence[RequestRow], percent: float) -> Figure | None:
    return percentile((row.plan.plan_ms for row in rows if row.plan), percent)


PLANNING_METRICS: Final = (
    # The denominator of every block rate.
    Metric(
        name="total_blocks",
        unit="blocks",
        formula="sum of floor(recipient tokens / block size)",
        needs=(Needs.TOKENS,),
        evidence=Evidence.OFFLINE,
        better="neither",
        measure=lambda rows: total(row.total_blocks for row in rows),
    ),
    Metric(
        name="prompt_tokens",
        unit="tokens",
        formula="sum of recipient tokens",
        needs=(Needs.TOKENS,),
        evidence=Evidence.OFFLINE,
        better="neither",
        measure=lambda rows: total(row.prompt_tokens for row in rows),
    ),
    # What a block cache could serve if the position of a block did not matter.
    Metric(
        name="exact_block_hit_rate",
        unit="share",
        formula="full recipient blocks whose tokens are a full block of the donor pool / total_blocks",
        needs=(Needs.TOKENS,),
        evidence=Evidence.OFFLINE,
        better="neither",
        measure=lambda rows: fraction_of_blocks(rows, lambda row: row.exact_hit_blocks),
    ),
    # What the engine's own prefix cache can serve.
    Metric(
        name="exact_prefix_block_rate",
        unit="share",
        formula="recipient blocks in the longest unbroken prefix shared with one donor / total_blocks",
        needs=(Needs.TOKENS,),
        evidence=Evidence.OFFLINE,
        better="neither",
        measure=lambda rows: fraction_of_blocks(rows, lambda row: row.exact_prefix_blocks),
    ),
    # How much of the traffic occurred before at any position: what any planner could find.
    Metric(
        name="any_position_token_rate",
        unit="share",
        formula="recipient tokens in token-verified runs of at least 64 tokens anywhere in earlier traffic / "
        "prompt_tokens",
        needs=(Needs.TOKENS,),
        evidence=Evidence.OFFLINE,
        better="neither",
        measure=lambda rows: fraction_of_tokens(rows, lambda row: row.any_position_tokens),
    ),
    # What the planner proposes, from any number of donors.
    Metric(
        name="semantic_candidate_block_rate",
        unit="share",
        formula="full recipient blocks with every position proposed / total_blocks",
        needs=(Needs.PLAN,),
        evidence=Evidence.OFFLINE,
        better="higher",
        measure=lambda rows: fraction_of_blocks(rows, lambda row: row.plan.candidate_blocks if row.plan else None),
    ),
    # The part of the proposal that a backend can load block by block.
    Metric(
        name="semantic_eligible_block_rate",
        unit="share",
        formula="candidate blocks from one donor at consecutive positions / total_blocks",
        needs=(Needs.PLAN,),
        evidence=Evidence.OFFLINE,
        better="higher",
        measure=lambda rows: fraction_of_blocks(rows, lambda row: row.plan.eligible_blocks if row.plan else None),
    ),
    # What the planner finds beyond position-independent exact blocks. Not yet reuse.
    Metric(
        name="semantic_eligible_lift",
        unit="share",
        formula="(semantic eligible blocks - exact hit blocks) / total_blocks, over requests with both",
        needs=(Needs.TOKENS, Needs.PLAN),
        evidence=Evidence.OFFLINE,
        better="higher",
        measure=lambda rows: ratio_of_sums(rows, _lift),
    ),
    # What is planned for the part that the engine's prefix cache leaves cold.
    Metric(
        name="beyond_prefix_planned_token_rate",
        unit="share",
        formula="planned tokens when the planner is given the exact prefix / tokens after the exact prefix",
        needs=(Needs.TOKENS, Needs.PLAN),
        evidence=Evidence.OFFLINE,
        better="higher",
        measure=lambda rows: ratio_of_sums(rows, _beyond_prefix),
    ),
    Metric(
        name="plan_rate_by_request",
        unit="share",
        formula="requests with at least one planned token / requests given to the planner",
        needs=(Needs.PLAN,),
        evidence=Evidence.OFFLINE,
        better="higher",
        measure=lambda rows: fraction_of_requests(rows, lambda row: row.plan.planned_tokens > 0 if row.plan else None),
    ),
    # Requests that resemble a donor. Similarity alone never permits loading anything.
    Metric(
        name="discovery_rate_by_request",
        unit="share",
        formula="requests with at least one similarity discovery / requests given to the planner",
        needs=(Needs.PLAN,),
        evidence=Evidence.OFFLINE,
        better="neither",
        measure=lambda rows: fraction_of_requests(rows, lambda row: row.plan.discoveries > 0 if row.plan else None),
    ),
    # How different the context of the planned tokens was when their KV was computed: the risk of reusing it.
    Metric(
        name="mean_context_share",
        unit="share",
        formula="mean over planned tokens of the fraction of preceding context that differs from the donor's",
        needs=(Needs.PLAN,),
        evidence=Evidence.OFFLINE,
        better="lower",
        measure=lambda rows: ratio_of_sums(rows, _context_share),
    ),
    # The bench compares every planned position with the donor's token. Must be 0.
    Metric(
        name="unverified_planned_token_rate",
        unit="share",
        formula="planned positions whose donor token differs from the recipient's / planned positions",
        needs=(Needs.TOKENS, Needs.PLAN),
        evidence=Evidence.OFFLINE,
        better="lower",
        measure=_unverified,
    ),
    # Whether a changed fact (a name, a number, a "not") was planned from the donor that states the original. Must be 0.
    Metric(
        name="changed_token_planned_rate",
        unit="share",
        formula="recipient tokens at edit positions that lie in a planned run / recipient tokens at edit positions",
        needs=(Needs.EDITS, Needs.PLAN),
        evidence=Evidence.OFFLINE,
        better="lower",
        measure=lambda rows: ratio_of_sums(rows, _changed),
    ),
    # What the embedder adds to the blocks that the token path finds alone.
    Metric(
        name="semantic_path_extra_candidate_blocks",
        unit="blocks",
        formula="candidate blocks with the embedder - candidate blocks without it, over requests planned both ways",
        needs=(Needs.BOTH_PLANS,),
        evidence=Evidence.OFFLINE,
        better="higher",
        measure=lambda rows: _embedder_adds(rows, lambda both, alone: both.candidate_blocks - alone.candidate_blocks),
    ),
    Metric(
        name="semantic_path_extra_eligible_blocks",
        unit="blocks",
        formula="eligible blocks with the embedder - eligible blocks without it, over requests planned both ways",
        needs=(Needs.BOTH_PLANS,),
        evidence=Evidence.OFFLINE,
        better="higher",
        measure=lambda rows: _embedder_adds(rows, lambda both, alone: both.eligible_blocks - alone.eligible_blocks),
    ),
    Metric(
        name="semantic_path_extra_discoveries",
        unit="requests",
        formula="requests with a discovery only with the embedder",
        needs=(Needs.BOTH_PLANS,),
        evidence=Evidence.OFFLINE,
        better="neither",
        measure=lambda rows: _embedder_adds(
            rows, lambda both, alone: int(both.discoveries > 0 and alone.discoveries == 0)
        ),
    ),
    Metric(
        name="plan_latency_ms_p50",
        unit="ms",
        formula="median of the planner's time per request",
        needs=(Needs.PLAN,),
        evidence=Evidence.OFFLINE,
        better="lower",
        measure=lambda rows: _plan_ms(rows, 50),
    ),
    Metric(
        name="plan_latency_ms_p99",
        unit="ms",
        formula="99th percentile (nearest rank) of the planner's time per request",
        needs=(Needs.PLAN,),
        evidence=Evidence.OFFLINE,
        better="lower",
        measure=lambda rows: _plan_ms(rows, 99),
    ),
)
