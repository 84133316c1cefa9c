"""Items against a running server: requests, resets, donors, recipients, the engine's reports. Out come rows.

Both live runners and the calibration use it. If a step that prepares an arm fails, its recipient is not sent: with a
cache that was not emptied, or donors missing, it would measure something else.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, Protocol

from sembase.errors import ConfigurationError
from sembench.http.reply import CONNECTION, OK, LiveReply
from sembench.http.request import LiveRequest
from sembench.live.engine import ConnectorAudit, Resets, backend_of_reply
from sembench.live.item_row import RESET_FAILED, ArmResult, PromptSizes, answered, donor_failed, item_row
from sembench.live.options import LiveOptions
from sembench.manifest import DonorPrompt, WorkloadItem
from sembench.metrics.rows import BackendRow, RequestRow
from sembench.workload.seeded import Draws

Arm = Literal["cold", "again", "warm"]
# Nothing is loaded from donors, and the request does not become one.
EXACT_ONLY: Final = {"reuse": False, "capture": False}
_POKE: Final = "ok"
_WARM_UP_LINES: Final = " ".join(f"Line {number} of a text that only wakes the server up." for number in range(60))


def donor_id(donor: DonorPrompt) -> str:
    return f"donor.{donor.donor_id}"


@dataclass(frozen=True, slots=True)
class RequestBuilder:
    """Requests with the ids and tenants that evidence is joined by.

    ``by_tenant`` isolates items and arms without resets: each gets a tenant of its own, new in every run.
    """

    options: LiveOptions
    model: str
    by_tenant: bool
    nonce: str = field(default_factory=lambda: secrets.token_hex(4))

    def donor(self, item: WorkloadItem, donor: DonorPrompt) -> LiveRequest:
        tenant = item.tenant_of_donor(donor)
        tools = donor.metadata.get("tools", item.metadata.get("tools"))
        name, max_tokens = donor_id(donor), self.options.donor_max_tokens
        return self._request(name, donor.text, max_tokens, item, tenant, "warm", tools=tools)

    def earlier(self, item: WorkloadItem) -> LiveRequest:
        """A recipient of a stream whose row is already known, sent again only as earlier traffic."""
        name = f"donor.{item.item_id}"
        tools, max_tokens = item.metadata.get("tools"), self.options.donor_max_tokens
        return self._request(name, item.recipient_prompt, max_tokens, item, item.tenant, "warm", tools=tools)

    def recipient(self, item: WorkloadItem, arm: Arm, fraction: float | None = None) -> LiveRequest:
        """The warm request has the item's own id; ``again`` is a second cold one. With a ``fraction`` the connector is
        asked to recompute that much, and the request becomes no donor.
        """
        name = item.item_id if arm == "warm" else f"{arm}.{item.item_id}"
        hints = None
        if fraction is not None:
            name, hints = f"{name}.{fraction:g}", {"recompute_fraction": fraction, "capture": False}
        return self._request(
            name,
            item.recipient_prompt,
            self.options.recipient_max_tokens,
            item,
            item.tenant,
            arm,
            top_logprobs=self.options.top_logprobs,
            hints=hints,
            tools=item.metadata.get("tools"),
        )

    def probe(self, item: WorkloadItem) -> LiveRequest:
        """The warm recipient again with reuse off: its cached tokens show what the exact cache holds of it."""
        name = f"probe.{item.item_id}"
        tools = item.metadata.get("tools")
        return self._request(name, item.recipient_prompt, 1, item, item.tenant, "warm", hints=EXACT_ONLY, tools=tools)

    def poke(self) -> LiveRequest:
        """A minimal request that makes an idle engine take a step."""
        return self._own("poke", _POKE)

    def warm_up(self, number: int) -> tuple[LiveRequest, LiveRequest]:
        """A donor and a recipient of its text, so that lazy loading in the engine does not slow down the first item."""
        donor = self._own(f"warm-up.donor.{number}", f"Round {number} begins. {_WARM_UP_LINES}")
        recipient = self._own(f"warm-up.{number}", f"Once more, in other words, round {number}: {_WARM_UP_LINES}")
        return donor, recipient

    def _own(self, name: str, prompt: str) -> LiveRequest:
        tenant = f"sembench.{self.nonce}"
        return LiveRequest(name, prompt, 1, self.model, self.options.endpoint, tenant=tenant)

    def _request(
        self,
        name: str,
        prompt: str,
        max_tokens: int,
        item: WorkloadItem,
        tenant: str | None,
        arm: Arm,
        *,
        top_logprobs: int | None = None,
        hints: Mapping[str, Any] | None = None,
        tools: object = None,
    ) -> LiveRequest:
        """``tools`` are definitions as OpenAI has them; only chat requests can carry them."""
        template = item.metadata.get("template")
        return LiveRequest(
            name,
            prompt,
            max_tokens,
            self.model,
            self.options.endpoint,
            tenant=self._tenant(item, tenant, arm),
            template=str(template) if template is not None else self.options.template,
            top_logprobs=top_logprobs,
            hints=hints,
            extra={"tools": tools} if tools and self.options.endpoint == "chat" else {},
        )

    def _tenant(self, item: WorkloadItem, tenant: str | None, arm: Arm) -> str | None:
        named = tenant if tenant is not None else self.options.tenant
        if not self.by_tenant:
            return named
        whose = item.stream_id if item.is_stream and arm == "warm" else item.item_id
        scope = f"{self.nonce}.{arm}.{whose}"
        return scope if named is None else f"{named}.{scope}"


class Asker(Protocol):
    async def ask(self, request: LiveRequest) -> LiveReply: ...


class LostConnectionError(Exception):
    """The server does not answer: this item was not measured, and no later one would be."""


@dataclass(slots=True)
class Preparation:
    """Counts of a run's preparation steps, for the result."""

    donors: int = 0
    unregistered_donors: int = 0
    failed_resets: int = 0
    first_failed_reset: str = ""


@dataclass(frozen=True, slots=True)
class Session:
    client: Asker
    donor_client: Asker
    requests: RequestBuilder
    resets: Resets
    recipient_resets: Resets
    sizes: PromptSizes
    options: LiveOptions
    audit: ConnectorAudit | None = None
    preparation: Preparation = field(default_factory=Preparation)

    async def measure(self, item: WorkloadItem) -> RequestRow:
        """An item with its donors: one arm, or both in an order drawn from the seed, so that drift favours neither."""
        warm_first = self._draw(item, "order") < 0.5
        cold = warm = None
        if self.options.arms == "warm":
            warm = await self.warm(item)
        elif self.options.arms == "cold":
            cold = await self.cold(item)
        elif self.options.arms == "cold_twice":
            cold, warm = await self.cold(item), await self.cold(item, "again")
        elif warm_first:
            warm = await self.warm(item)
            cold = await self.cold(item)
        else:
            cold = await self.cold(item)
            warm = await self.warm(item)
        return self._row(item, cold, warm, warm_first=warm_first)

    async def measure_in_stream(self, item: WorkloadItem) -> RequestRow:
        """The next request of a stream, without reset and donors: everything before it in the stream may serve it."""
        return self._row(item, None, await self._ask_warm(item), warm_first=True)

    async def begin_stream(self, earlier: Sequence[WorkloadItem]) -> None:
        """Empties the caches and, if the stream is resumed, sends its earlier requests again."""
        if self.resets and self.options.reset_per_item:
            await self.clear(self.resets)
        for item in earlier:
            reply = await self.client.ask(self.requests.earlier(item))
            if reply.status == CONNECTION:
                raise LostConnectionError(reply.detail)

    async def cold(self, item: WorkloadItem, reading: Literal["cold", "again"] = "cold") -> ArmResult:
        """The recipient alone, on emptied caches."""
        request = self.requests.recipient(item, reading)
        if self.resets and not await self.clear(self.resets):
            return ArmResult(request.request_id, RESET_FAILED)
        return self._checked(answered(await self.client.ask(request)))

    async def warm(self, item: WorkloadItem) -> ArmResult:
        """The donors in order, the wait until they are registered, then the recipient."""
        if self.resets and self.options.reset_per_item and not await self.clear(self.resets):
            return ArmResult(item.item_id, RESET_FAILED)
        names = [donor_id(donor) for donor in item.donor_prompts]
        if self.audit is not None:
            self.audit.expect(names)
        try:
            for donor in item.donor_prompts:
                reply = await self.donor_client.ask(self.requests.donor(item, donor))
                if reply.status != OK:
                    return self._checked(donor_failed(item.item_id, reply))
            await self._await_donors(names)
        finally:
            if self.audit is not None:
                self.audit.release(names)
        if self.recipient_resets and not await self.clear(self.recipient_resets):
            return ArmResult(item.item_id, RESET_FAILED)
        return await self._ask_warm(item)

    async def clear(self, resets: Resets) -> bool:
        failure = await resets.clear()
        if failure is None:
            return True
        if failure.is_lost:
            raise LostConnectionError(failure.detail)
        self.preparation.failed_resets += 1
        self.preparation.first_failed_reset = self.preparation.first_failed_reset or f"{failure.url} {failure.detail}"
        return False

    async def _ask_warm(self, item: WorkloadItem) -> ArmResult:
        if self.audit is not None:
            self.audit.expect((item.item_id,))
        reply = await self.client.ask(self.requests.recipient(item, "warm"))
        backend = None
        if self.audit is None:
            backend = backend_of_reply(item.item_id, reply.backend)
        elif reply.status == OK:
            backend = await self.audit.outcome_of(item.item_id)
        if self.audit is not None:
            self.audit.release((item.item_id,))
        if backend is not None and backend.reused_tokens and self._draw(item, "probe") < self.options.check_propagation:
            backend = replace(backend, propagated_tokens=await self._propagated(item, reply, backend))
        return self._checked(answered(reply, backend))

    async def _propagated(self, item: WorkloadItem, reply: LiveReply, backend: BackendRow) -> int | None:
        """Tokens of a blended prompt that the exact cache serves although they were not computed exactly.

        Computed exactly are the exact prefix and, if the adapter reports it, the tokens after it up to the first moved
        run.
        """
        probe = await self.client.ask(self.requests.probe(item))
        if probe.status != OK or probe.cached_tokens is None:
            return None
        exact = _exact_end(reply) or backend.boundary
        if exact is None and reply.cached_tokens is not None and backend.reused_tokens is not None:
            exact = max(0, reply.cached_tokens - backend.reused_tokens)
        return None if exact is None else max(0, probe.cached_tokens - exact)

    async def _await_donors(self, donors: Sequence[str]) -> None:
        if donors and self.options.post_donor_delay_ms:
            await asyncio.sleep(self.options.post_donor_delay_ms / 1000)
        self.preparation.donors += len(donors)
        if donors and self.audit is not None:
            self.preparation.unregistered_donors += len(await self.audit.unregistered(donors))

    def _checked(self, arm: ArmResult) -> ArmResult:
        if arm.lost_connection:
            raise LostConnectionError(arm.reply.detail if arm.reply is not None else "while sending the donors")
        return arm

    def _draw(self, item: WorkloadItem, purpose: str) -> float:
        return Draws(self.options.seed, item.item_id, purpose).uniform()

    def _row(
        self, item: WorkloadItem, cold: ArmResult | None, warm: ArmResult | None, *, warm_first: bool
    ) -> RequestRow:
        return item_row(item, cold, warm, warm_first=warm_first, options=self.options, sizes=self.sizes)


def _exact_end(reply: LiveReply) -> int | None:
    tokens = (reply.backend or {}).get("exact_tokens")
    return tokens if isinstance(tokens, int) and not isinstance(tokens, bool) else None


async def warm_up(client: Asker, requests: RequestBuilder, rounds: int, server: str) -> LiveReply | None:
    """Requests that pay for lazy loading in the server and show whether it can be measured at all; the last reply."""
    reply = None
    for number in range(rounds):
        donor, recipient = requests.warm_up(number)
        for request in (donor, requests.poke(), recipient):
            reply = await client.ask(request)
            if reply.status != OK:
                raise ConfigurationError(f"{server} failed the warm-up request: {reply.status} {reply.detail}".rstrip())
    return reply


@dataclass(frozen=True, slots=True)
class LiveUnit:
    """Work that runs on its own: an item with its donors, or a stream in order.

    ``earlier`` are the first items of a stream, whose rows are known: they are sent again without being measured.
    """

    items: tuple[WorkloadItem, ...]
    is_stream: bool = False
    earlier: tuple[WorkloadItem, ...] = ()


def live_units(items: Sequence[WorkloadItem], done: Collection[str], *, streams_apart: bool) -> list[LiveUnit]:
    """Units in the manifest's order. Without ``streams_apart`` items of a stream are single items, as in cold runs."""
    streams: dict[str, list[WorkloadItem]] = {}
    units: dict[str, LiveUnit] = {}
    for item in items:
        if item.is_stream and not streams_apart:
            pass
        elif item.is_stream:
            streams.setdefault(item.stream_id, []).append(item)
            units.setdefault(f"stream {item.stream_id}", LiveUnit((), is_stream=True))
            continue
        if item.item_id not in done:
            units[f"item {item.item_id}"] = LiveUnit((item,))
    for stream_id, members in streams.items():
        left = [index for index, member in enumerate(members) if member.item_id not in done]
        first = left[0] if left else len(members)
        units[f"stream {stream_id}"] = LiveUnit(tuple(members[first:]), True, tuple(members[:first]))
    return [unit for unit in units.values() if unit.items]


async def replay(units: Sequence[LiveUnit], session: Session, concurrency: int) -> AsyncGenerator[RequestRow, None]:
    """Rows as they are ready, at most ``concurrency`` units at a time. The first error ends all of them.

    A unit continues once its row was consumed, so the row is on disk before the unit's next request is sent.
    """
    waiting = iter(units)
    ready: asyncio.Queue[tuple[RequestRow, asyncio.Event] | None] = asyncio.Queue()

    async def work() -> None:
        try:
            for unit in waiting:
                async with aclosing(_replay_unit(unit, session)) as rows:
                    async for row in rows:
                        taken = asyncio.Event()
                        ready.put_nowait((row, taken))
                        await taken.wait()
        finally:
            ready.put_nowait(None)

    tasks = [asyncio.create_task(work()) for _ in range(min(concurrency, len(units)))]
    try:
        working = len(tasks)
        while working:
            entry = await ready.get()
            if entry is not None:
                yield entry[0]
                entry[1].set()
                continue
            working -= 1
            for task in tasks:
                if task.done() and not task.cancelled() and (error := task.exception()) is not None:
                    raise error
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _replay_unit(unit: LiveUnit, session: Session) -> AsyncGenerator[RequestRow, None]:
    if not unit.is_stream:
        for item in unit.items:
            yield await session.measure(item)
        return
    await session.begin_stream(unit.earlier)
    for item in unit.items:
        yield await session.measure_in_stream(item)
