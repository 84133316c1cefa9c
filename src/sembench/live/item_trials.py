"""One item with several fractions recomputed, beside its cold answer.

Its donors are stored once and its recipient is asked once per fraction, which is named in the request, then cold. Every
item has a tenant of its own. A recipient that was not reused is tried again after a longer wait, as another tenant:
donors are stored a moment after their answer, when the engine takes its next step. Answers are asked for in one piece,
because vLLM's streams do not carry the report of reuse.
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
from sembench.live.session import Asker, RequestBuilder
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


def trials_from_json(record: object, where: str) -> ItemTrials:
    try:
        values = dict(record)  # type: ignore[call-overload]
        trials = tuple(ItemTrial(**trial) for trial in values.pop("trials"))
        return ItemTrials(**values, trials=trials)
    except (TypeError, ValueError, KeyError) as error:
        raise ContractError(f"{where}: not a row of answer budgets ({error})") from None


async def measure_item(
    item: WorkloadItem,
    tokens: int,
    client: Asker,
    requests: RequestBuilder,
    fractions: Sequence[float],
    wait: Callable[[float], Awaitable[object]] = asyncio.sleep,
) -> ItemTrials:
    """``tokens`` is the length that its budget will cover."""
    replies: list[LiveReply] = []
    for seconds in _WAITS_S:
        own = replace(requests, nonce=secrets.token_hex(4))
        for donor in item.donor_prompts:
            await client.ask(own.donor(item, donor))
        await client.ask(own.poke())
        await wait(seconds)
        replies = [await client.ask(_whole(own.recipient(item, "warm", fractions[0])))]
        if _is_reused(replies[0]):
            break
    if reused := _is_reused(replies[0]):
        replies += [await client.ask(_whole(own.recipient(item, "warm", fraction))) for fraction in fractions[1:]]
    cold = await client.ask(_whole(own.recipient(item, "cold")))
    report = _report(replies[0])
    cold_mark = _marked(cold, item)
    runs = report.get("runs", ()) if reused else ()
    moved = [run["length"] for run in runs if run.get("context_risk", 0.0) > MOVED_SHARE]
    return ItemTrials(
        item_id=item.item_id,
        dataset=item.dataset,
        transform=item.transform,
        up_to_tokens=tokens,
        prompt_tokens=cold.prompt_tokens,
        shape=str(report["class"]) if reused else None,
        moved_runs=len(moved),
        shortest_run=min(moved or [run["length"] for run in runs], default=None),
        policy=next((named for reply in replies if (named := _report(reply).get("selected_by"))), None),
        cold_right=None if cold_mark is None else bool(cold_mark.right),
        cold_read=None if cold_mark is None else cold_mark.read,
        cold_ms=cold.total_ms,
        trials=tuple(_trial(item, *pair) for pair in zip(fractions, replies, strict=False)) if reused else (),
        why=_why(replies[0], cold),
    )


def _whole(request: LiveRequest) -> LiveRequest:
    return replace(request, stream=False)


def _trial(item: WorkloadItem, fraction: float, reply: LiveReply) -> ItemTrial:
    found = _marked(reply, item) if _is_reused(reply) else None
    return ItemTrial(
        fraction=fraction,
        right=None if found is None else bool(found.right),
        read=None if found is None else found.read,
        stale=None if found is None else found.stale,
        ms=reply.total_ms,
    )


def _marked(reply: LiveReply, item: WorkloadItem) -> Mark | None:
    if reply.status != OK:
        return None
    return mark(reply.text, task_of(item.answers, item.metadata, LiveOptions().quality_threshold))


def _report(reply: LiveReply) -> Mapping[str, Any]:
    return reply.backend or {}


def _is_reused(reply: LiveReply) -> bool:
    return reply.status == OK and _report(reply).get("outcome") == Outcome.BACKEND_MATERIALIZED_REUSE.value


def _why(first: LiveReply, cold: LiveReply) -> str | None:
    """Why the item tells nothing, as far as the server says."""
    for reply in (first, cold):
        if reply.status != OK:
            return f"{reply.status} {reply.detail}".strip()
    if _is_reused(first):
        return None
    report = _report(first)
    return str(report.get("detail") or report.get("reason") or "the server reports no reuse")
