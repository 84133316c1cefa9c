"""What becomes a donor, for how long, and what a server without the SemBlend worker class still does."""

from __future__ import annotations

import pytest
from tests.engines.vllm.connector.client import Ask, first_difference
from tests.engines.vllm.connector.connector_server import ConnectorServer
from tests.engines.vllm.connector.kinds import (
    MAIN,
    SAMPLED_SHARE,
    SMALL,
    SMALL_DONOR_TOKENS,
    SMALL_HOST_BYTES,
    SUGGESTING,
)
from tests.engines.vllm.connector.prompts import BLOCK_TOKENS, Texts, opening
from tests.waiting import wait_until

from semblend.contract import DonorEvicted, DonorRegistered

pytestmark = [pytest.mark.engine, pytest.mark.slow]

REUSED = "backend_materialized_reuse"
SPLIT_NOISE = 0.01  # see test_exactness.py


@pytest.mark.parametrize("server", [SMALL], indirect=True)
def test_hinted_keeps_what_asks_for_it(server: ConnectorServer, texts: Texts) -> None:
    client = server.client
    assert client.ask(Ask(texts.passage(0, 300), salt="hint-none")).semblend["donor_id"] is None
    assert client.ask(Ask(texts.passage(0, 300), salt="hint-no", capture=False)).semblend["donor_id"] is None
    server.wait_for_donor(client.ask(Ask(texts.passage(0, 300), salt="hint-yes", capture=True)))
    assert client.ask(Ask(texts.passage(0, 100), salt="hint-short", capture=True)).semblend["donor_id"] is None


@pytest.mark.parametrize("server", [SMALL], indirect=True)
def test_the_oldest_donor_makes_room_and_is_never_planned_again(server: ConnectorServer, texts: Texts) -> None:
    client, salt = server.client, "room"
    documents = [texts.passage(n * SMALL_DONOR_TOKENS, SMALL_DONOR_TOKENS) for n in range(3)]
    ids = [server.wait_for_donor(client.ask(Ask(document, salt=salt, capture=True))) for document in documents]
    gone = [event for event in server.events() if isinstance(event, DonorEvicted)]
    assert ids[0] in {event.donor_id for event in gone if event.reason == "capacity"}
    assert not {event.donor_id for event in gone} & set(ids[1:])
    assert client.metrics()["vllm:semblend_host_bytes"] <= SMALL_HOST_BYTES
    client.reset()
    lost, kept = (client.ask(Ask([*documents[i], 5, 6, 7], salt=salt)) for i in (0, 2))
    assert (lost.outcome, lost.semblend["reason"]) == ("cold_fallback", "no_candidate")
    assert kept.outcome == REUSED
    assert {run["donor_id"] for run in kept.semblend["runs"]} == {ids[2]}


@pytest.mark.parametrize("server", [SMALL], indirect=True)
def test_a_prompt_larger_than_the_store_is_served_and_not_kept(server: ConnectorServer, texts: Texts) -> None:
    reply = server.client.ask(Ask(texts.passage(0, 3 * SMALL_DONOR_TOKENS), salt="large", capture=True))
    assert reply.semblend["donor_id"] is None
    assert reply.outcome == "cold_fallback"


@pytest.mark.parametrize("server", [SMALL], indirect=True)
def test_without_the_worker_class_only_prefixes_are_loaded(server: ConnectorServer, texts: Texts) -> None:
    client, salt = server.client, "prefixes"
    document = texts.passage(1500, SMALL_DONOR_TOKENS)
    server.wait_for_donor(client.ask(Ask(document, salt=salt, capture=True)))
    client.reset()
    longer = texts.question(document)
    loaded = client.ask(Ask(longer, max_tokens=4, salt=salt))
    assert loaded.outcome == REUSED
    assert loaded.semblend["computed_tokens"] == 0
    assert [(run["donor_start"], run["target_start"]) for run in loaded.semblend["runs"]] == [(0, 0)]
    assert loaded.cached_tokens == loaded.reused_tokens == len(document)
    cold = client.ask(Ask(longer, max_tokens=4, salt="prefixes-cold", reuse=False))
    assert first_difference(loaded, cold) <= SPLIT_NOISE, "at its own place, donor KV is the exact KV"
    moved = client.ask(Ask(texts.question(document, opening(31)), salt=salt))
    assert (moved.reused_tokens, moved.semblend["reason"]) == (0, "unsupported_mode")
    assert "cannot compute gaps" in moved.semblend["detail"]
    assert server.log.count("SemBlend is restricted to prefix-shaped loads") == 1


@pytest.mark.nightly  # by chance, if rarely; the server of the semantic path starts for it
@pytest.mark.parametrize("server", [SUGGESTING], indirect=True)
def test_sampled_keeps_a_share(server: ConnectorServer, texts: Texts) -> None:
    asked = 30
    kept = 0
    for n in range(asked):
        reply = server.client.ask(Ask(texts.passage(n * 130, 130), salt=f"sample-{n}"))
        kept += reply.semblend["donor_id"] is not None
    # 30 draws at one half leave these limits once in 50,000 times.
    assert SAMPLED_SHARE == 0.5
    assert 4 <= kept <= 26
    always = server.client.ask(Ask(texts.passage(0, 130), salt="sample-hinted", capture=True))
    assert always.semblend["donor_id"] is not None


@pytest.mark.parametrize("server", [MAIN], indirect=True)
def test_all_keeps_everything_new_and_nothing_twice(server: ConnectorServer, texts: Texts) -> None:
    client, salt = server.client, "all"
    document = texts.passage(0, 400)
    server.wait_for_donor(client.ask(Ask(document, salt=salt)))
    client.reset()
    assert client.ask(Ask(document, salt=salt, reuse=False)).semblend["donor_id"] is None
    assert client.ask(Ask(texts.passage(400, BLOCK_TOKENS - 1), salt=salt)).semblend["donor_id"] is None


@pytest.mark.parametrize("server", [MAIN], indirect=True)
def test_a_reset_of_the_connector_forgets_every_donor(server: ConnectorServer, texts: Texts) -> None:
    client, salt = server.client, "forgotten"
    document = texts.passage(0, 400)
    donor_id = server.wait_for_donor(client.ask(Ask(document, salt=salt)))
    client.reset()
    prompt = texts.question(document, opening(32))
    assert client.ask(Ask(prompt, salt=salt, capture=False)).outcome == REUSED, "the plain reset leaves donors alone"
    client.reset(donors=True)
    after = client.ask(Ask(prompt, salt=salt, capture=False))
    assert (after.outcome, after.cached_tokens) == ("cold_fallback", 0)
    gone = {event.donor_id: event.reason for event in server.events() if isinstance(event, DonorEvicted)}
    assert gone[donor_id] == "reset"
    registered = {event.donor_id for event in server.events() if isinstance(event, DonorRegistered)}
    assert registered <= gone.keys()
    wait_until(lambda: _host_bytes(server) == 0.0, "the store still holds bytes")


def _host_bytes(server: ConnectorServer) -> float:
    server.client.ask(Ask([1, 2, 3], salt="flush"))  # what one step did is shown by the next one
    return server.client.metrics()["vllm:semblend_host_bytes"]
