"""The requests of a live run: who asks, under which id and tenant. Ids are what evidence is joined by."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from sembench.http.request import LiveRequest
from sembench.live.options import LiveOptions
from sembench.manifest import DonorPrompt, WorkloadItem

Arm = Literal["cold", "again", "warm"]
# An exact request: nothing loaded from donors, nothing kept as one.
_EXACT_ONLY: Final = {"reuse": False, "capture": False}
_NUDGE: Final = "ok"
_WARM_UP_LINES: Final = " ".join(f"Line {number} of a text that only wakes the server up." for number in range(60))


def donor_id(donor: DonorPrompt) -> str:
    return f"donor.{donor.donor_id}"


@dataclass(frozen=True, slots=True)
class Messages:
    """``by_tenant`` keeps items and arms apart where no reset does: each gets tenants of its own, new for every run."""

    options: LiveOptions
    model: str
    by_tenant: bool
    nonce: str = field(default_factory=lambda: secrets.token_hex(4))

    def donor(self, item: WorkloadItem, donor: DonorPrompt) -> LiveRequest:
        tenant = item.tenant_of_donor(donor)
        return self._request(donor_id(donor), donor.text, self.options.donor_max_tokens, item, tenant, "warm")

    def earlier(self, item: WorkloadItem) -> LiveRequest:
        """A recipient of a stream whose row is already known: sent again as the earlier traffic it is."""
        name = f"donor.{item.item_id}"
        return self._request(name, item.recipient_prompt, self.options.donor_max_tokens, item, item.tenant, "warm")

    def recipient(self, item: WorkloadItem, arm: Arm) -> LiveRequest:
        """The warm one's id is the item's own; ``again`` is a second cold one."""
        name = item.item_id if arm == "warm" else f"{arm}.{item.item_id}"
        return self._request(
            name,
            item.recipient_prompt,
            self.options.recipient_max_tokens,
            item,
            item.tenant,
            arm,
            top_logprobs=self.options.top_logprobs,
        )

    def probe(self, item: WorkloadItem) -> LiveRequest:
        """The warm recipient again, served exactly: its cached tokens are what the exact cache holds of it."""
        name = f"probe.{item.item_id}"
        return self._request(name, item.recipient_prompt, 1, item, item.tenant, "warm", hints=_EXACT_ONLY)

    def nudge(self) -> LiveRequest:
        """The least request: it makes an idle engine take a step."""
        return self._own("nudge", _NUDGE)

    def warm_up(self, number: int) -> tuple[LiveRequest, LiveRequest]:
        """A donor and a recipient of its text: what an engine loads late for reuse must not cost the first item."""
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
    ) -> LiveRequest:
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
        )

    def _tenant(self, item: WorkloadItem, tenant: str | None, arm: Arm) -> str | None:
        named = tenant if tenant is not None else self.options.tenant
        if not self.by_tenant:
            return named
        whose = item.stream_id if item.is_stream and arm == "warm" else item.item_id
        scope = f"{self.nonce}.{arm}.{whose}"
        return scope if named is None else f"{named}.{scope}"
