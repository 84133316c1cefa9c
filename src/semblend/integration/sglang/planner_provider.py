"""The built-in provider: the planner's verified plans as suggestions, with donors that are in the tree.

Texts are decoded and embedded on other threads from the moment a request arrives; a look-up uses what is ready.
"""

from __future__ import annotations

from collections import OrderedDict
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np

from semblend.contract import Decline, DeclineReason, ReusePlan
from semblend.integration.core.refresh_on_repeat import RefreshOnRepeat, novel_stretches
from semblend.integration.sglang.provider import (
    SemanticPrefixProvider,
    SemanticPrefixResult,
    StagedRequest,
    TokenIds,
)

if TYPE_CHECKING:
    from semblend.contract import TokenRange
    from semblend.contract.donor_event import Tier
    from semblend.integration.sglang.donors import Donors
    from semblend.integration.texts import TextDecoder
    from semblend.pipeline.planner import Planner

MAX_STAGED: Final = 8192  # tracked requests; older ones are planned again if they are looked up again


class PlannerProvider(SemanticPrefixProvider):
    """``declined`` returns why the last look-up of a request gave nothing."""

    def __init__(
        self, planner: Planner, donors: Donors, decoder: TextDecoder | None, refresh: RefreshOnRepeat | None
    ) -> None:
        self.donors = donors
        self._planner = planner
        self._decoder = decoder
        self._refresh = refresh
        self._staged: OrderedDict[str, StagedRequest] = OrderedDict()
        self._texts: dict[str, str] = {}
        self._declines: dict[str, Decline] = {}

    @property
    def version(self) -> int:
        return self.donors.version

    @property
    def wants_texts(self) -> bool:
        return self._decoder is not None

    def on_request_staged(self, request: StagedRequest) -> None:
        if request.rid not in self._staged and self._decoder is not None and request.namespace.is_known:
            self._decoder.decode(request.rid, request.token_ids, partial(self._embed, request))
        self._staged[request.rid] = request
        while len(self._staged) > MAX_STAGED:
            self._forget(next(iter(self._staged)))

    def on_prefix_miss(self, rid: str, token_ids: TokenIds) -> SemanticPrefixResult | None:
        request = self._staged[rid]
        decided = self._declines.get(rid)
        if decided is not None and decided.reason is DeclineReason.DONOR_REFRESH:
            return None  # looked up again: it stays cold so that its passages get a donor
        answer = self._planner.plan(
            np.asarray(token_ids, np.uint32), request.namespace, request.exact_prefix_tokens, self._texts.get(rid)
        )
        if isinstance(answer, ReusePlan) and self._refresh is not None:
            due = self._refresh.due(request.token_ids, request.namespace, answer)
            if due:
                self._refresh.served(due)
                answer = Decline(DeclineReason.DONOR_REFRESH, "repeated passages have no donor yet")
        if isinstance(answer, Decline):
            self._declines[rid] = answer
            return None
        self._declines.pop(rid, None)
        donors = {donor_id: self.donors.tokens_of(donor_id) for donor_id in answer.donor_ids}
        largest = max(answer.runs, key=lambda run: run.length).donor_id
        tokens = donors[largest]
        assert tokens is not None, "a planned donor is held"
        return SemanticPrefixResult(
            alternate_token_ids=tokens,
            num_cached_tokens=answer.reused_tokens,
            metadata={"plan": answer, "donors": donors},
            source_id=largest,
        )

    def declined(self, rid: str) -> Decline | None:
        return self._declines.get(rid)

    def on_request_cached(self, rid: str, token_ids: TokenIds) -> None:
        request = self._staged.get(rid)
        if request is None:
            return
        text, tokens = self._texts.get(rid), np.asarray(token_ids, np.uint32)
        donor_id = self.donors.add(rid, tokens, request.namespace, text)
        if donor_id is not None and text is None and self._decoder is not None:
            self._decoder.decode(rid, tokens, partial(self._planner.describe, donor_id, request.namespace))

    def on_request_blended(self, rid: str, plan: ReusePlan, exact_tokens: int) -> None:
        """Its new passages were computed after inexact KV and are not kept; they are remembered in case they repeat."""
        request = self._staged.get(rid)
        if request is None or self._refresh is None:
            return
        self._refresh.served(())
        least = self._planner.gates.min_run_tokens
        novel: list[TokenRange] = [part for part in novel_stretches(plan, exact_tokens) if len(part) >= least]
        self._refresh.remember(request.token_ids, request.namespace, novel)

    def on_request_released(self, rid: str) -> None:
        self._forget(rid)

    def on_donor_lost(self, source_id: str, cached_tokens: int) -> None:
        self.donors.shorten(source_id, cached_tokens)

    def on_donor_seen(self, source_id: str, tier: Tier) -> None:
        self.donors.seen(source_id, tier)

    def on_reset(self) -> None:
        self.donors.clear()
        if self._refresh is not None:
            self._refresh.clear()

    def on_shutdown(self) -> None:
        self._planner.close()

    def _forget(self, rid: str) -> None:
        self._staged.pop(rid, None)
        self._texts.pop(rid, None)
        self._declines.pop(rid, None)

    def _embed(self, request: StagedRequest, text: str) -> None:
        """On the decoder's thread. Leaves nothing behind for a request that is gone."""
        self._planner.stage(text, request.namespace)
        self._texts[request.rid] = text
        if request.rid not in self._staged:  # checked last: the scheduler may have released it in the meantime
            self._texts.pop(request.rid, None)
