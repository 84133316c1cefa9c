"""Replicas without an engine: what is reused, written and fetched under each rule, on made-up documents."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.fleet.replay.__main__ import ARMS, EVERYTHING, verdicts_of
from benchmarks.fleet.replay.replicas import PrefixCache, ReplayFleet, Totals
from benchmarks.fleet.replay.streams import StreamRequest


def drawn(seed: int, length: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 49_152, length, dtype=np.uint32)


def asked(document: int, number: int, session: str | None = None) -> StreamRequest:
    """A question about a document, in a frame of its own."""
    head, tail = drawn(1_000 + number, 24), drawn(2_000 + number, 24)
    return StreamRequest((head, drawn(document, 1_500), tail), session)


def replayed(writes: str, requests: list[StreamRequest], replicas: int = 64) -> Totals:
    fleet = ReplayFleet(replicas, writes, seed=1)  # type: ignore[arg-type]
    for request in requests:
        fleet.serve(request)
    return fleet.totals


def test_donors_of_the_fleet_are_reused_where_private_ones_are_not() -> None:
    requests = [asked(1, number) for number in range(4)]
    size = requests[0].tokens.size
    alone, shared = replayed("nothing", requests), replayed("all", requests)
    assert (alone.reused, alone.written, alone.fetched) == (0, 0, 0)
    assert shared.reused > 3 * 1_400
    assert (shared.written, shared.fetched) == (size, 3 * size), "one donor, fetched by three other replicas"


def test_writing_every_prompt_writes_blended_ones_as_well() -> None:
    requests = [asked(1, number) for number in range(4)]
    assert replayed("prompts", requests).written == sum(request.tokens.size for request in requests)


def test_a_session_stays_with_its_replica() -> None:
    requests = [asked(1, number, "session") for number in range(4)]
    totals = replayed("nothing", requests)
    assert totals.reused > 3 * 1_400


def test_the_prefix_cache_has_whole_blocks_and_never_the_last_token() -> None:
    cache = PrefixCache()
    tokens = drawn(1, 100)
    assert cache.take(tokens) == 0
    assert cache.take(tokens) == 96
    assert cache.take(np.concatenate([tokens[:40], drawn(2, 60)])) == 32
    assert cache.take(tokens[:96]) == 80


def test_rules_are_judged_against_writing_everything() -> None:
    found = {arm: Totals(prompt=100, reused=50, written=20) for arm in ARMS}
    found[EVERYTHING] = Totals(prompt=100, reused=50, written=100)
    assert {verdict.word for verdict in verdicts_of("x", found)} == {"PASS"}
    found["fleet, computed donors written"] = Totals(prompt=100, reused=40, written=40)
    words = [verdict.word for verdict in verdicts_of("x", found)]
    assert words == ["PASS"] * 2 + ["NOT REACHED"] * 2
    assert verdicts_of("x", dict.fromkeys(ARMS, Totals()))[0].measured is None


@pytest.mark.parametrize("share", [Totals(), Totals(prompt=10, exact=5, reused=2)])
def test_shares_are_of_all_tokens(share: Totals) -> None:
    assert share.share in (0.0, 0.7)
