"""What routers hear of donors in the radix tree, and that donors get their text although it is decoded late."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.unit.semblend.integration.sglang.trackers import NAMESPACE, OPEN, words

from semblend.contract import Namespace
from semblend.contract.donor_event import Tier
from semblend.integration.announce import Announcer
from semblend.integration.sglang.donors import Donors
from semblend.integration.sglang.planner_provider import PlannerProvider
from semblend.integration.sglang.provider import StagedRequest
from semblend.pipeline.planner import Planner
from semblend.settings import Settings

PAGE = 16


class Listener(Announcer):
    """An announcer that records its calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def loadable(
        self, donor_id: str, tokens: NDArray[np.uint32], tenant: str | None, lora: str | None, tier: Tier = "host"
    ) -> None:
        self.calls.append(("loadable", donor_id, len(tokens), tenant, tier))

    def withdrawn(self, donor_id: str, reason: str) -> None:
        self.calls.append(("withdrawn", donor_id, reason))

    def relocated(self, donor_id: str, tier: Tier) -> None:
        self.calls.append(("relocated", donor_id, tier))

    def purged(self, reason: str) -> None:
        self.calls.append(("purged", reason))

    def close(self) -> None:
        self.calls.append(("close",))


def donors_with(listener: Listener) -> tuple[Planner, Donors]:
    planner = Planner(settings=Settings(embedder="none"), gates=OPEN, budget_bytes=1 << 24)
    return planner, Donors(planner, lambda _: None, 128, PAGE, listener)


def test_a_donor_is_announced_shortened_withdrawn_and_purged() -> None:
    listener = Listener()
    _, donors = donors_with(listener)
    tenant = Namespace(tenant="t", model="m")
    first = donors.add("a", words(1, 320), tenant)
    second = donors.add("b", words(2, 320), NAMESPACE)
    assert first is not None
    assert second is not None
    donors.shorten(first, 160)
    donors.shorten(second, 64)
    donors.clear()
    assert listener.calls == [
        ("loadable", first, 320, "t", "device"),
        ("loadable", second, 320, None, "device"),
        ("loadable", first, 160, "t", "device"),
        ("withdrawn", second, "evicted by the engine"),
        ("purged", "reset"),
    ]


def test_the_tier_of_a_donor_is_announced_when_it_changes_and_only_then() -> None:
    listener = Listener()
    _, donors = donors_with(listener)
    donor = donors.add("a", words(1, 320), NAMESPACE)
    assert donor is not None
    for tier in ("device", "host", "host", "device"):
        donors.seen(donor, tier)
    donors.seen("unknown", "host")
    assert listener.calls[1:] == [("relocated", donor, "host"), ("relocated", donor, "device")]
    donors.seen(donor, "host")
    donors.shorten(donor, 160)
    assert listener.calls[-1] == ("loadable", donor, 160, None, "host")
    donors.clear()
    assert not donors._tiers


def test_what_is_not_kept_is_not_announced() -> None:
    listener = Listener()
    _, donors = donors_with(listener)
    assert donors.add("short", words(1, 64), NAMESPACE) is None
    assert listener.calls == []


class LateDecoder:
    """Hands texts over when the test says so."""

    def __init__(self) -> None:
        self.jobs: list[tuple[str, Callable[[str], None]]] = []

    def decode(self, request_id: str, tokens: NDArray[np.uint32], take: Callable[[str], None]) -> None:
        self.jobs.append((request_id, take))


def test_a_donor_whose_text_comes_later_is_described_then(monkeypatch: pytest.MonkeyPatch) -> None:
    planner, donors = donors_with(Listener())
    described: list[tuple[str, str]] = []
    monkeypatch.setattr(planner, "describe", lambda donor_id, _, text: described.append((donor_id, text)))
    decoder = LateDecoder()
    provider = PlannerProvider(planner, donors, decoder, None)  # type: ignore[arg-type]
    tokens = words(3, 320)
    provider.on_request_staged(StagedRequest("r", tokens, NAMESPACE, 0))
    provider.on_request_cached("r", tokens)
    assert [name for name, _ in decoder.jobs] == ["r", "r"]
    decoder.jobs[1][1]("the donor's text")
    assert [text for _, text in described] == ["the donor's text"]
    assert described[0][0] in donors._held


def test_a_text_that_comes_after_its_request_is_gone_is_not_kept() -> None:
    planner, donors = donors_with(Listener())
    decoder = LateDecoder()
    provider = PlannerProvider(planner, donors, decoder, None)  # type: ignore[arg-type]
    provider.on_request_staged(StagedRequest("r", words(4, 320), NAMESPACE, 0))
    provider.on_request_released("r")
    decoder.jobs[0][1]("too late")
    assert provider._texts == {}
