"""A promise that the engine's own tiers overtake between look-up and admission."""

from __future__ import annotations

import numpy as np
from tests.unit.semblend.integration.sglang.trackers import TrackerBench, words

DOCUMENT = words(1, 800)
PROMPT = np.concatenate([words(2, 50), DOCUMENT, words(3, 40)])


def promised(bench: TrackerBench) -> int:
    bench.serve_cold("donor", np.concatenate([words(9, 30), DOCUMENT, words(8, 20)]))
    return bench.ask("r", PROMPT)


def test_a_longer_exact_match_takes_the_promise_back_and_its_loss_brings_it_again() -> None:
    bench = TrackerBench()
    tokens = promised(bench)
    assert tokens > 0
    bench.tracker.overtaken("r")
    assert bench.record("r").plan is None
    assert bench.tracker.publishable("r", 890) == 890, "what the engine loads itself is exact"
    assert bench.ask("r", PROMPT) == tokens


def test_what_is_loaded_stays_accounted_for() -> None:
    bench = TrackerBench()
    promised(bench)
    record = bench.record("r")
    bench.tracker.loaded(record)
    bench.tracker.overtaken("r")
    assert record.plan is not None
    bench.tracker.confirmed(record, 1.0, 1.0)
    assert bench.tracker.publishable("r", 890) == record.exact_tokens < 890


def test_strangers_are_nobodys_business() -> None:
    bench = TrackerBench()
    bench.tracker.overtaken("unknown")
    assert bench.tracker.known("unknown") is None
