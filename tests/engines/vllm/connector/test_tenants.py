"""Tenants share nothing: no tokens, no exact blocks, no names of donors, no work saved that would tell of another."""

from __future__ import annotations

import json

import pytest
from tests.engines.vllm.connector.client import Ask, Reply, first_difference
from tests.engines.vllm.connector.connector_server import ConnectorServer
from tests.engines.vllm.connector.kinds import MAIN
from tests.engines.vllm.connector.prompts import Texts, opening
from tests.waiting import wait_until

from sembase.records import as_plain

pytestmark = [
    pytest.mark.engine,
    pytest.mark.slow,
    pytest.mark.parametrize("server", [MAIN], indirect=True),
]

REUSED = "backend_materialized_reuse"
PROMPTS = "vllm:prompt_tokens_total"
COMPUTED = 'vllm:prompt_tokens_by_source_total{source="local_compute"}'


@pytest.mark.parametrize(
    ("owner", "stranger"),
    [("tenant-a", "tenant-b"), (None, "tenant-c"), ("tenant-d", None)],
    ids=["two salts", "salt after none", "none after salt"],
)
def test_equal_text_of_another_tenant_is_cold(
    server: ConnectorServer, texts: Texts, owner: str | None, stranger: str | None
) -> None:
    client = server.client
    start = {"tenant-a": 0, None: 1000, "tenant-d": 2000}[owner]
    document = texts.passage(start, 700)
    donor_id = server.wait_for_donor(client.ask(Ask(document, salt=owner)))
    recipient = texts.question(document, opening(start))
    own, own_computed = worked(server, Ask(recipient, salt=owner, capture=False))
    assert own.outcome == REUSED, "the owner's own donor is found"

    cold, cold_computed = worked(server, Ask(recipient, salt=f"nobody-before-{owner}", reuse=False, capture=False))
    foreign, foreign_computed = worked(server, Ask(recipient, salt=stranger, capture=False))
    same_again = client.ask(Ask(document, salt=stranger, capture=False))
    for reply in (foreign, same_again):
        assert reply.cached_tokens == 0
        assert reply.reused_tokens == 0
        assert reply.outcome == "cold_fallback"
        assert reply.semblend["reason"] == "no_candidate"
        assert donor_id not in json.dumps(reply.body)
        reported = [as_plain(event) for event in server.events_of(reply)]
        assert reported, "the stream has the stranger's look-up"
        assert donor_id not in json.dumps(reported)
    assert first_difference(foreign, cold) == 0.0, "computed as if no request had come before"
    assert foreign_computed == cold_computed > 700, "the engine saved no work that would tell of another tenant"
    assert own_computed < cold_computed // 2, "the owner's own donor saves most of it"


def worked(server: ConnectorServer, ask: Ask) -> tuple[Reply, int]:
    """The reply and how many prompt tokens the engine computed for it."""
    before = server.client.metrics()
    reply = server.client.ask(ask)
    wait_until(lambda: server.client.metrics()[PROMPTS] > before[PROMPTS], "the engine did not count the prompt")
    return reply, int(server.client.metrics()[COMPUTED] - before[COMPUTED])


def test_a_tenants_namespace_does_not_show_its_salt(server: ConnectorServer, texts: Texts) -> None:
    secret = "a-salt-that-must-not-be-logged"
    reply = server.client.ask(Ask(texts.passage(3000, 200), salt=secret))
    server.wait_for_donor(reply)
    assert secret not in json.dumps([as_plain(event) for event in server.events()])
    assert secret not in json.dumps(reply.body)
    assert secret not in server.log
