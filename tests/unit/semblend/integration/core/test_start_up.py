"""What the log of every engine says while an adapter starts."""

from __future__ import annotations

import logging

import pytest

from semblend.integration.core import start_up
from semblend.integration.core.start_up import small_donor_memory
from semblend.pipeline.planner import Planner

MESSAGE = "SemBlend is compiling look-ups, once, about a minute"


@pytest.mark.parametrize("is_cached", [False, True])
def test_a_start_that_compiles_says_so(
    is_cached: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(start_up, "has_cached_code", lambda package: is_cached)
    monkeypatch.setattr(Planner, "warm_up", lambda: None)
    with caplog.at_level(logging.INFO):
        start_up.warm_up(logging.getLogger("engine"))
    assert caplog.messages == ([] if is_cached else [MESSAGE])


def test_donor_memory_below_one_context_is_a_warning() -> None:
    assert small_donor_memory(20 << 20, 23_040, 8192) == (
        "Donor memory is small: host_bytes holds 910 tokens, fewer than one request of the maximum length (8,192), "
        "which takes 188,743,680 bytes."
    )
    assert not small_donor_memory(188_743_680, 23_040, 8192)
