"""Questions about one text with several fractions recomputed, beside their cold answers.

The donors are stored once. Each question is asked once per fraction, which is named in the request, then without
reuse, and if that changed whether the answer is right, without reuse again in other chunks. Every text has tenants of
its own. A first question without reuse is tried again after a longer wait, as another tenant: donors are stored a
moment after their answer, when the engine takes its next step. Answers are asked for in one piece, because vLLM's
streams do not carry the report of reuse.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from sembase.errors import ContractError
from sembench.http.reply import OK, LiveReply
from sembench.http.request import LiveRequest
from sembench.live.options import LiveOptions
from sembench.live.session import EXACT_ONLY, Asker, RequestBuilder
from sembench.manifest import WorkloadItem
from sembench.scoring import mark
from sembench.scoring.base import Mark, task_of
from semblend.contract import Outcome, PlanShape
from semblend.contract.shape import MOVED_SHARE

MOVED: Final = frozenset({PlanShape.REORDER, PlanShape.COMPOSITION})
_WAITS_S: Final = (0.3, 1.5, 7.5)


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemTrial:
    """An item with one fraction recomputed. ``right`` is None if the reply was not usable or nothing was reused."""

    fraction: float
    right: bool | None
    read: str | None
    stale: bool | None
    ms: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemTrials:
    """``shape`` as the connector reported it; None, with ``why``: nothing was reused.

    ``moved_runs`` have mostly other context than in their donors; ``shortest_run`` is the shortest of them, or of all.
    ``cold`` is the engine alone; ``cold_ms`` is None where the text was in its exact cache. ``floor_right`` is that of
    a second cold answer in other chunks; None: not asked, because reuse changed nothing.
    """

    item_id: str
    dataset: str
    transform: str
    up_to_tokens: int
    prompt_tokens: int | None
    shape: str | None
    moved_runs: int
    shortest_run: int | None
    policy: str | None
    cold_right: bool | None
    cold_read: str | None
    cold_ms: float | None
    floor_right: bool | None
    trials: tuple[ItemTrial, ...]
    why: str | None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def measured_shape(self) -> PlanShape | None:
        """The class it counts for; None where it tells nothing about one."""
        if self.shape is None or self.cold_right is None or any(trial.right is None for trial in self.trials):
            return None
        shape = PlanShape(self.shape)
        return shape if bool(self.moved_runs) == (shape in MOVED) else None

    @property
    def is_changed(self) -> bool:
        """Whether any fraction made a right answer wrong or a wrong one right."""
        return self.cold_right is not None and any(trial.right not in (None, self.cold_right) for trial in self.trials)

    @property
    def is_steady(self) -> bool:
        """Whether a second cold answer, if there was one, is as right as the first; others tell nothing about reuse."""
        return self.floor_right in (None, self.cold_right)

    @property
    def is_complete(self) -> bool:
        """Whether nothing of it has to be asked again."""
        asked = self.cold_right is not None and bool(self.trials) and all(one.right is not None for one in self.trials)
        return asked and (self.floor_right is not None or not self.is_changed)

    def is_lost(self, trial: ItemTrial) -> bool:
        """Whether a right answer became wrong, or a wrong one that of the earlier revision."""
        if self.cold_right:
            return trial.right is False
        return bool(trial.stale) and trial.read != self.cold_read

    def is_gained(self, trial: ItemTrial) -> bool:
        return bool(trial.right) and not self.cold_right


def trials_from_json(record: object, where: str) -> ItemTrials:
    try:
        values = dict(record)  # type: ignore[call-overload]
        trials = tuple(ItemTrial(**trial) for trial in values.pop("trials"))
        return ItemTrials(**values, trials=trials)
    except (TypeError, ValueError, KeyError) as error:
        raise ContractError(f"{where}: not a row of answer budgets ({error})") from None


@dataclass(frozen=True, slots=True)
class _Text:
    """Questions about one text. They have one tenant, so they share its donors and the engine's exact blocks."""

    client: Asker
    requests: RequestBuilder
    first: WorkloadItem

    async def store_donors(self) -> None:
        for donor in self.first.donor_prompts:
            await self.client.ask(self.requests.donor(self.first, donor))
        await self.client.ask(self.requests.poke())

    async def warm(self, item: WorkloadItem, fraction: float) -> LiveReply:
        return await self._ask(self.requests.recipient(item, "warm", fraction))

    async def cold(self, item: WorkloadItem) -> LiveReply:
        return await self._ask(replace(self.requests.recipient(item, "cold"), hints=EXACT_ONLY))

    async def cold_in_halves(self, item: WorkloadItem) -> LiveReply:
        """Half of the prompt first, as another tenant, so that the engine computes it in other chunks."""
        request = replace(self.requests.recipient(item, "again"), hints=EXACT_ONLY, stream=False)
        half = str(request.prompt)[: len(item.recipient_prompt) // 2]
        await self.client.ask(replace(request, request_id=f"{request.request_id}.half", prompt=half, max_tokens=1))
        return await self.client.ask(request)

    async def _ask(self, request: LiveRequest) -> LiveReply:
        tenant = self.requests.recipient(self.first, "warm").tenant
        return await self.client.ask(replace(request, tenant=tenant, stream=False))


async def measure_text(
    items: Sequence[WorkloadItem],
    tokens: int,
    client: Asker,
    requests: RequestBuilder,
    fractions: Sequence[float],
    wait: Callable[[float], Awaitable[object]] = asyncio.sleep,
) -> list[ItemTrials]:
    """``items`` ask about one text, whose donors are those of the first. ``tokens`` is what their budget will cover.

    All are asked with reuse before the first is asked cold: that leaves the text in the engine's exact cache.
    """
    first, text = items[0], _Text(client, requests, items[0])
    warm: dict[str, list[LiveReply]] = {}
    for seconds in _WAITS_S:
        text = _Text(client, replace(requests, nonce=secrets.token_hex(4)), first)
        await text.store_donors()
        await wait(seconds)
        warm[first.item_id] = [await text.warm(first, fractions[0])]
        if _is_reused(warm[first.item_id][0]):
            break
    for item in items if _is_reused(warm[first.item_id][0]) else ():
        replies = warm.setdefault(item.item_id, [])
        for fraction in fractions[len(replies) :]:
            replies.append(await text.warm(item, fraction))
            if not _is_reused(replies[0]):
                break
    rows = []
    for item in items:
        replies = warm.get(item.item_id, warm[first.item_id])
        cold = await text.cold(item) if item.item_id in warm else None
        row = _row(item, tokens, replies, cold, fractions if item.item_id in warm else ())
        if row.is_changed:
            again = marked(await text.cold_in_halves(item), item)
            row = replace(row, floor_right=None if again is None else bool(again.right))
        rows.append(row if item is first else replace(row, cold_ms=None))
    return rows


def _row(
    item: WorkloadItem,
    tokens: int,
    replies: Sequence[LiveReply],
    cold: LiveReply | None,
    fractions: Sequence[float],
) -> ItemTrials:
    """``cold`` is None for a question that was not asked, because the one before found nothing to reuse."""
    reused, report = _is_reused(replies[0]), _report(replies[0])
    cold_mark = None if cold is None else marked(cold, item)
    runs = report.get("runs", ()) if reused else ()
    moved = [run["length"] for run in runs if run.get("context_risk", 0.0) > MOVED_SHARE]
    return ItemTrials(
        item_id=item.item_id,
        dataset=item.dataset,
        transform=item.transform,
        up_to_tokens=tokens,
        prompt_tokens=None if cold is None else cold.prompt_tokens,
        shape=str(report["class"]) if reused else None,
        moved_runs=len(moved),
        shortest_run=min(moved or [run["length"] for run in runs], default=None),
        policy=next((named for reply in replies if (named := _report(reply).get("selected_by"))), None),
        cold_right=None if cold_mark is None else bool(cold_mark.right),
        cold_read=None if cold_mark is None else cold_mark.read,
        cold_ms=None if cold is None else cold.total_ms,
        floor_right=None,
        trials=tuple(_trial(item, *pair) for pair in zip(fractions, replies, strict=False)) if reused else (),
        why=_why(replies[0], cold),
    )


def _trial(item: WorkloadItem, fraction: float, reply: LiveReply) -> ItemTrial:
    found = marked(reply, item) if _is_reused(reply) else None
    return ItemTrial(
        fraction=fraction,
        right=None if found is None else bool(found.right),
        read=None if found is None else found.read,
        stale=None if found is None else found.stale,
        ms=reply.total_ms,
    )


def marked(reply: LiveReply, item: WorkloadItem) -> Mark | None:
    if reply.status != OK:
        return None
    return mark(reply.text, task_of(item.answers, item.metadata, LiveOptions().quality_threshold))


def _report(reply: LiveReply) -> Mapping[str, Any]:
    return reply.backend or {}


def _is_reused(reply: LiveReply) -> bool:
    return reply.status == OK and _report(reply).get("outcome") == Outcome.BACKEND_MATERIALIZED_REUSE.value


def _why(first: LiveReply, cold: LiveReply | None) -> str | None:
    """Why the item tells nothing, as far as the server says."""
    for reply in (first, cold):
        if reply is not None and reply.status != OK:
            return f"{reply.status} {reply.detail}".strip()
    if _is_reused(first):
        return None
    report = _report(first)
    return str(report.get("detail") or report.get("reason") or "the server reports no reuse")
