"""One item against a running server: resets, donors, recipients, the engine's word. Out comes the item's row.

Both live runners and the calibration use it. What prepares an arm must succeed, or the arm is not asked: a recipient
whose cache was not emptied, or whose donors are missing, measures something else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

from sembench.http.reply import CONNECTION, OK, LiveReply
from sembench.http.request import LiveRequest
from sembench.live.arms import RESET_FAILED, ArmResult, answered, donor_failed
from sembench.live.audit import ConnectorAudit
from sembench.live.item_row import item_row
from sembench.live.messages import Messages, donor_id
from sembench.live.options import LiveOptions
from sembench.live.prompt_size import PromptSizes
from sembench.live.reply_evidence import backend_of_reply
from sembench.live.resets import Resets
from sembench.manifest import WorkloadItem
from sembench.metrics.rows import BackendRow, RequestRow
from sembench.workload.seeded import Draws


class Asker(Protocol):
    async def ask(self, request: LiveRequest) -> LiveReply: ...


class LostConnectionError(Exception):
    """The server does not answer at all: nothing about this item was measured, and no later item would be."""


@dataclass(slots=True)
class Notes:
    """What a run says at its end about its own preparation."""

    donors: int = 0
    unregistered_donors: int = 0
    refused_resets: int = 0
    first_refusal: str = ""


@dataclass(frozen=True, slots=True)
class Session:
    client: Asker
    donor_client: Asker
    messages: Messages
    resets: Resets
    recipient_resets: Resets
    sizes: PromptSizes
    options: LiveOptions
    audit: ConnectorAudit | None = None
    notes: Notes = field(default_factory=Notes)

    async def measure(self, item: WorkloadItem) -> RequestRow:
        """An item with its donors: one arm, or both in the order the seed draws, so that drift favours neither."""
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
        """The next request of a stream: no reset and no donors, since all that came before is what may serve it."""
        return self._row(item, None, await self._ask_warm(item), warm_first=True)

    async def begin_stream(self, earlier: Sequence[WorkloadItem]) -> None:
        """Caches as at the stream's beginning, then what came before, for a stream that goes on after a break."""
        if self.resets and self.options.reset_per_item:
            await self.clear(self.resets)
        for item in earlier:
            reply = await self.client.ask(self.messages.earlier(item))
            if reply.status == CONNECTION:
                raise LostConnectionError(reply.detail)

    async def cold(self, item: WorkloadItem, reading: Literal["cold", "again"] = "cold") -> ArmResult:
        """The recipient alone, on emptied caches."""
        request = self.messages.recipient(item, reading)
        if self.resets and not await self.clear(self.resets):
            return ArmResult(request.request_id, RESET_FAILED)
        return self._checked(answered(await self.client.ask(request)))

    async def warm(self, item: WorkloadItem) -> ArmResult:
        """The donors in their order, the wait until they can be found, then the recipient."""
        if self.resets and self.options.reset_per_item and not await self.clear(self.resets):
            return ArmResult(item.item_id, RESET_FAILED)
        names = [donor_id(donor) for donor in item.donor_prompts]
        if self.audit is not None:
            self.audit.expect(names)
        try:
            for donor in item.donor_prompts:
                reply = await self.donor_client.ask(self.messages.donor(item, donor))
                if reply.status != OK:
                    return self._checked(donor_failed(item.item_id, reply))
            await self._settle(names)
        finally:
            if self.audit is not None:
                self.audit.release(names)
        if self.recipient_resets and not await self.clear(self.recipient_resets):
            return ArmResult(item.item_id, RESET_FAILED)
        return await self._ask_warm(item)

    async def clear(self, resets: Resets) -> bool:
        refusal = await resets.clear()
        if refusal is None:
            return True
        if refusal.is_lost:
            raise LostConnectionError(refusal.detail)
        self.notes.refused_resets += 1
        self.notes.first_refusal = self.notes.first_refusal or f"{refusal.url} {refusal.detail}"
        return False

    async def _ask_warm(self, item: WorkloadItem) -> ArmResult:
        if self.audit is not None:
            self.audit.expect((item.item_id,))
        reply = await self.client.ask(self.messages.recipient(item, "warm"))
        backend = None
        if self.audit is None:
            backend = backend_of_reply(item.item_id, reply.backend)
        elif reply.status == OK:
            backend = await self.audit.fate(item.item_id)
        if self.audit is not None:
            self.audit.release((item.item_id,))
        if backend is not None and backend.reused_tokens and self._draw(item, "probe") < self.options.check_propagation:
            backend = replace(backend, propagated_tokens=await self._propagated(item, reply, backend))
        return self._checked(answered(reply, backend))

    async def _propagated(self, item: WorkloadItem, reply: LiveReply, backend: BackendRow) -> int | None:
        """Tokens of a blended prompt that the exact cache serves although only what was computed exactly may be there.

        That is the exact prefix and, where the adapter says so, what it computed behind it before the first moved run.
        """
        probe = await self.client.ask(self.messages.probe(item))
        if probe.status != OK or probe.cached_tokens is None:
            return None
        exact = _exact_end(reply) or backend.boundary
        if exact is None and reply.cached_tokens is not None and backend.reused_tokens is not None:
            exact = max(0, reply.cached_tokens - backend.reused_tokens)
        return None if exact is None else max(0, probe.cached_tokens - exact)

    async def _settle(self, donors: Sequence[str]) -> None:
        if donors and self.options.post_donor_delay_ms:
            await asyncio.sleep(self.options.post_donor_delay_ms / 1000)
        self.notes.donors += len(donors)
        if donors and self.audit is not None:
            self.notes.unregistered_donors += len(await self.audit.unregistered(donors))

    def _checked(self, arm: ArmResult) -> ArmResult:
        if arm.lost_connection:
            raise LostConnectionError(arm.reply.detail if arm.reply is not None else "while asking the donors")
        return arm

    def _draw(self, item: WorkloadItem, purpose: str) -> float:
        return Draws(self.options.seed, item.item_id, purpose).share()

    def _row(
        self, item: WorkloadItem, cold: ArmResult | None, warm: ArmResult | None, *, warm_first: bool
    ) -> RequestRow:
        return item_row(item, cold, warm, warm_first=warm_first, options=self.options, sizes=self.sizes)


def _exact_end(reply: LiveReply) -> int | None:
    told = (reply.backend or {}).get("exact_tokens")
    return told if isinstance(told, int) and not isinstance(told, bool) else None
