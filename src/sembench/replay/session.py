"""One isolated piece of traffic: donors are admitted, recipients are measured against everything admitted before.

The planner isolates sessions: each has its scope in the tenant component of the namespace, so a recipient of one item
is never served from a donor of another, and a leak between tenants would show as a plan.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sembase.tokenizer import Tokenized, Tokenizer, open_tokenizer
from sembench.manifest import WorkloadItem
from sembench.metrics.rows import PlanRow, RequestRow
from sembench.planner import DonorPlanner, PlannerConfig, open_planner
from sembench.replay.coverage import Coverage, cover
from sembench.replay.pool import DonorPool
from semblend.contract import Decline, Namespace, ReusePlan

Ids = NDArray[np.int64]
_MODEL: Final = "offline"
NO_EMBEDDER: Final = "none"
_WARM_UP_TOKENS: Final = 256


@dataclass(frozen=True, slots=True)
class ReplayConfig:
    block_size: int = 16
    tokenizer: str | None = None
    planner: PlannerConfig = field(default_factory=PlannerConfig)


class Tools:
    """The tokenizer and the planners, which are expensive and created once per process.

    With an embedder there are two planners, the second without it: the difference is what the embedder adds.
    """

    def __init__(self, config: ReplayConfig) -> None:
        self.config = config
        self.tokenizer: Tokenizer = open_tokenizer(config.tokenizer)
        self.planner = open_planner(config.planner)
        self.token_planner: DonorPlanner | None = None
        if config.planner.embedder != NO_EMBEDDER:
            self.token_planner = open_planner(replace(config.planner, embedder=NO_EMBEDDER))
        for planner in self.planners():
            _warm_up(planner)

    def planners(self) -> list[DonorPlanner]:
        return [self.planner] if self.token_planner is None else [self.planner, self.token_planner]

    def close(self) -> None:
        for planner in self.planners():
            planner.close()


class Session:
    def __init__(self, tools: Tools, scope: str) -> None:
        self._tools = tools
        self._scope = scope
        self._pools: dict[str | None, DonorPool] = {}
        self._donors: dict[str, Ids] = {}
        self._encoded: tuple[str, Tokenized] | None = None

    def admit(self, donor_id: str, text: str, tenant: str | None) -> None:
        """Adds the prompt to the earlier traffic of its tenant."""
        ids = self._encode(text).ids
        if not len(ids):
            return
        self._pool(tenant).add(ids)
        scoped = f"{self._scope}\x1f{donor_id}"
        self._donors[scoped] = ids
        for planner in self._tools.planners():
            planner.register(scoped, ids, self._namespace(tenant), text)

    def measure(self, item: WorkloadItem) -> RequestRow:
        recipient = self._encode(item.recipient_prompt)
        pool = self._pool(item.tenant)
        exact = pool.evidence(recipient.ids)
        # The engine must compute at least the last token, so its prefix hit never covers the whole prompt.
        prefix_tokens = min(exact.prefix_blocks * pool.block_size, max(0, len(recipient.ids) - 1))
        for planner in self._tools.planners():
            planner.wait_until_indexed()
        plan, coverage = self._plan(self._tools.planner, recipient.ids, item, 0)
        token_plan = None
        if self._tools.token_planner is not None:
            token_plan, _ = self._plan(self._tools.token_planner, recipient.ids, item, 0)
        beyond = plan
        if prefix_tokens:
            beyond, _ = self._plan(self._tools.planner, recipient.ids, item, prefix_tokens)
        changed = _changed_positions(item, recipient, self._tools.tokenizer)
        return RequestRow(
            item_id=item.item_id,
            dataset=item.dataset,
            source_id=item.source_id,
            transform=item.transform,
            negative_control=item.negative_control,
            tenant=item.tenant,
            stream_id=item.stream_id if item.is_stream else None,
            prompt_tokens=len(recipient.ids),
            total_blocks=exact.total_blocks,
            exact_hit_blocks=exact.hit_blocks,
            exact_prefix_blocks=exact.prefix_blocks,
            exact_prefix_tokens=prefix_tokens,
            any_position_tokens=exact.any_position_tokens,
            plan=plan,
            token_plan=token_plan,
            plan_beyond_prefix_tokens=beyond.planned_tokens,
            changed_tokens=None if changed is None else len(changed),
            changed_planned_tokens=None if changed is None else _count(coverage, changed),
        )

    def end(self) -> None:
        for donor_id in self._donors:
            for planner in self._tools.planners():
                planner.forget(donor_id)
        self._donors.clear()
        self._pools.clear()

    def _encode(self, text: str) -> Tokenized:
        """Remembers the last text: a recipient of a stream is encoded to be measured and again to be admitted."""
        if self._encoded is None or self._encoded[0] != text:
            self._encoded = (text, self._tools.tokenizer.encode(text))
        return self._encoded[1]

    def _plan(
        self, planner: DonorPlanner, ids: Ids, item: WorkloadItem, prefix_tokens: int
    ) -> tuple[PlanRow, Coverage | None]:
        started = time.perf_counter()
        answer = planner.plan(ids, self._namespace(item.tenant), prefix_tokens, item.recipient_prompt)
        plan_ms = (time.perf_counter() - started) * 1000
        if isinstance(answer, Decline):
            return _declined(answer, plan_ms), None
        coverage = cover(answer, ids, self._donors)
        return _planned(answer, coverage, self._tools.config.block_size, plan_ms), coverage

    def _pool(self, tenant: str | None) -> DonorPool:
        return self._pools.setdefault(tenant, DonorPool(self._tools.config.block_size))

    def _namespace(self, tenant: str | None) -> Namespace:
        return Namespace(
            tenant=f"{self._scope}\x1f{tenant!r}",
            model=_MODEL,
            tokenizer=self._tools.tokenizer.name,
            block_size=self._tools.config.block_size,
        )


def _warm_up(planner: DonorPlanner) -> None:
    """Compilers and caches start on the first plan; that time belongs to no request."""
    namespace = Namespace(tenant="warm-up", model=_MODEL)
    ids = np.arange(4 * _WARM_UP_TOKENS, dtype=np.int64) % 4093
    planner.register("warm-up", ids, namespace, "a text to start with")
    planner.wait_until_indexed()
    planner.plan(np.concatenate([ids[_WARM_UP_TOKENS:], ids]), namespace, 0, "a text to start with")
    planner.plan(ids, namespace, _WARM_UP_TOKENS, "a text to start with")
    planner.forget("warm-up")


def _declined(answer: Decline, plan_ms: float) -> PlanRow:
    return PlanRow(
        candidate_blocks=0,
        eligible_blocks=0,
        planned_tokens=0,
        unverified_tokens=0,
        runs=0,
        donors=0,
        discoveries=len(answer.discoveries),
        decline_reason=str(answer.reason),
        mean_context_share=None,
        plan_ms=plan_ms,
    )


def _planned(answer: ReusePlan, coverage: Coverage, block_size: int, plan_ms: float) -> PlanRow:
    weighted = sum(run.risk.mean_share * run.length for run in answer.runs)
    return PlanRow(
        candidate_blocks=coverage.candidate_blocks(block_size),
        eligible_blocks=coverage.eligible_blocks(block_size),
        planned_tokens=coverage.planned_tokens,
        unverified_tokens=coverage.unverified_tokens,
        runs=len(answer.runs),
        donors=len(answer.donor_ids),
        discoveries=len(answer.discoveries),
        decline_reason=None,
        mean_context_share=weighted / answer.reused_tokens,
        plan_ms=plan_ms,
    )


def _changed_positions(item: WorkloadItem, recipient: Tokenized, tokenizer: Tokenizer) -> Ids | None:
    """Recipient tokens that differ from the donor's at the manifest's edit positions; None if not a hard negative.

    Tokens that an edit touches but leaves equal (the last digits of a changed number) are not changed tokens.
    """
    if item.metadata.get("hard_negative") is not True or len(item.donor_prompts) != 1:
        return None
    donor = tokenizer.encode(item.donor_prompts[0].text)
    found = [np.empty(0, np.int64)]
    for edit in item.metadata.get("edits", ()):
        ours, theirs = recipient.overlapping(*edit["recipient"]), donor.overlapping(*edit["donor"])
        while len(ours) and len(theirs) and recipient.ids[ours[-1]] == donor.ids[theirs[-1]]:
            ours, theirs = ours[:-1], theirs[:-1]
        while len(ours) and len(theirs) and recipient.ids[ours[0]] == donor.ids[theirs[0]]:
            ours, theirs = ours[1:], theirs[1:]
        found.append(ours)
    return np.unique(np.concatenate(found))


def _count(coverage: Coverage | None, positions: Ids) -> int:
    return 0 if coverage is None else int(coverage.proposed[positions].sum())
