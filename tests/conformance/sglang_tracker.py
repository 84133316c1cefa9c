"""The SGLang adapter's tracker, provider and planner, the radix tree simulated. Donor KV lives in that tree."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
from tests.conformance.adapter import Answer, Shape
from tests.conformance.exact_cache import ExactCache
from tests.unit.semblend.integration.sglang.trackers import OPEN, TrackerBench

from semblend.contract import Event, Namespace
from semblend.contract.namespace import UNKNOWN
from semblend.integration.border import Border
from semblend.integration.hints import Hints
from semblend.integration.sglang.namespace import request_namespace
from semblend.integration.sglang.options import SglangOptions
from semblend.pipeline.planner import Planner
from semblend.settings import Settings

LOG = logging.getLogger("conformance")
BASE = Namespace(tenant=UNKNOWN, model="m")


class SglangTracker:
    name = "sglang_tracker"
    loads: frozenset[Shape] = frozenset({"moved"})  # what leaves the tree leaves with its donors
    tells_runs = True

    def __init__(
        self, *, require_salt: bool = False, enabled: bool = True, options: SglangOptions | None = None
    ) -> None:
        self._require_salt = require_salt
        self._bench = TrackerBench(
            options=options or SglangOptions(gates=OPEN, refresh_on_repeat=False, min_donor_tokens=64)
        )
        self._planner: Planner = self._bench.provider.donors._findable._planner
        if not enabled:
            self._planner.settings = Settings(embedder="none", enabled=False)
        self._cache = ExactCache()
        self._serial = 0
        self._border = Border(self._bench.events.append, LOG)
        self._plan = self._planner.plan
        self._known: dict[str, list[int]] = {}

    def serve(self, tokens: Sequence[int], salt: str | None = None) -> Answer:
        self._serial += 1
        rid, array, tracker = f"r{self._serial}", np.asarray(tokens, np.uint32), self._bench.tracker
        namespace = request_namespace(BASE, salt, None, require_salt=self._require_salt)
        boundary = self._cache.match(tokens, salt)
        promised = self._border.call(
            "lookup", rid, lambda: self._bench.ask(rid, array, boundary=boundary, namespace=namespace), 0
        )
        record = tracker.open(rid, array, namespace, Hints())
        assert record is not None
        plan = record.plan if promised else None
        if plan is not None:
            tracker.loaded(record)
            tracker.confirmed(record, 1.0, 1.0)
        public = tracker.publishable(rid, len(tokens))
        self._cache.publish(tokens[:public], salt)
        page = self._bench.page
        if plan is None:
            self._bench.tree[rid] = array[: len(tokens) // page * page]
        donors = set(self._bench.provider.donors._held)
        self._border.call("donor", rid, lambda: tracker.cached(rid, len(tokens), public), None)
        tracker.released(rid)
        for donor_id in set(self._bench.provider.donors._held) - donors:
            self._known[donor_id] = list(tokens)
        if plan is None:
            reason = record.decline.reason.value if record.decline is not None else None
            return Answer(boundary, reason=reason)
        return Answer(
            boundary,
            promised,
            plan.runs,
            plan.computed_tokens,
            plan.reused_tokens,
            True,
            recompute_fraction=plan.recompute_fraction,
        )

    def forget_exact(self) -> None:
        self._cache.clear()
        self._bench.tree.clear()

    def forget_donors(self) -> None:
        self._bench.tracker.reset()

    def break_look_up(self, broken: bool) -> None:
        self._planner.plan = _broken if broken else self._plan  # type: ignore[method-assign]

    def donor_tokens(self, donor_id: str) -> Sequence[int]:
        return self._known[donor_id]

    def events(self) -> Sequence[Event]:
        return self._bench.events

    def close(self) -> None:
        self._planner.close()


def _broken(*_: Any, **__: Any) -> Any:
    raise RuntimeError("broken on purpose")
