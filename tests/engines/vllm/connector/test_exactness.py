"""The exact cache stays exact: nothing a blended request wrote is ever served, or announced, as a prefix.

Every test is a tenant of its own, so no cache has to be emptied between them. A prompt asked with ``reuse`` false and
nothing of it in the exact cache is computed by the engine alone: that is the cold answer everything is held against.
"""

from __future__ import annotations

import itertools

import pytest
from tests.engines.vllm.connector.announcements import listening
from tests.engines.vllm.connector.client import Ask, first_difference, token_id
from tests.engines.vllm.connector.connector_server import ConnectorServer
from tests.engines.vllm.connector.kinds import EVERY_MODEL
from tests.engines.vllm.connector.prompts import BLOCK_TOKENS, Texts, opening, shared_prefix
from tests.waiting import wait_until

from semblend.contract import Materialized
from semblend.plan.selection import DEFAULT_POLICY, SHORT_PROMPT_FRACTION

pytestmark = [
    pytest.mark.engine,
    pytest.mark.slow,
    pytest.mark.parametrize("server", EVERY_MODEL, indirect=True),
]

# Largest difference of a log probability between two computations of the same prompt that split it differently (a
# cached prefix, another chunk): float32 sums in another order. Equal splits give equal bits.
SPLIT_NOISE = 0.01
REUSED = "backend_materialized_reuse"
MINUTES_OF_TOKENS = 5_000


@pytest.mark.parametrize("generated", [1, 150])
def test_after_a_blend_the_prompt_has_no_exact_tokens_and_the_cold_answer(
    server: ConnectorServer, texts: Texts, generated: int
) -> None:
    salt = f"after-{generated}"
    client = server.client
    document = texts.passage(0, 900)
    server.wait_for_donor(client.ask(Ask(document, salt=salt)))
    recipient = texts.question(document, opening(generated))
    cold = client.ask(Ask(recipient, salt=salt + "-cold", reuse=False, capture=False))
    assert cold.cached_tokens == 0

    blended = client.ask(Ask(recipient, max_tokens=generated, salt=salt, capture=False))
    assert blended.outcome == REUSED
    assert blended.cached_tokens == blended.reused_tokens == blended.kept_tokens > 700
    assert blended.semblend["compute_share"] == SHORT_PROMPT_FRACTION, "by default, of so much in a short prompt"
    assert blended.semblend["selected_by"] == DEFAULT_POLICY, "reported for one-token answers, too"
    # All of it as a prompt: had a block of the blend been cached under its public name, also one filled while
    # generating, it would be found here.
    whole = [*recipient, *blended.tokens, *texts.encode(" And then?")]
    assert client.ask(Ask(whole, salt=salt, reuse=False, capture=False)).cached_tokens == 0

    # The probe just computed these blocks exactly, so now they may be served; the answer is the cold one.
    exact = client.ask(Ask(recipient, salt=salt, reuse=False, capture=False))
    assert exact.cached_tokens == shared_prefix(recipient, recipient[:-1])
    assert first_difference(exact, cold) <= SPLIT_NOISE


def test_while_a_blend_is_generating_no_other_request_sees_its_blocks(server: ConnectorServer, texts: Texts) -> None:
    salt, client = "during", server.client
    document = texts.passage(0, 400)
    over = len(texts.question(document, opening(3))) % BLOCK_TOKENS
    document = document[: len(document) - over]  # the first generated token begins a block
    server.wait_for_donor(client.ask(Ask(document, salt=salt)))
    recipient = texts.question(document, opening(3))
    stream = client.stream(Ask(recipient, max_tokens=MINUTES_OF_TOKENS, salt=salt, capture=False))
    first = next(stream)
    chunks, generated = itertools.chain([first], stream), list[int]()
    while len(generated) < BLOCK_TOKENS + 2:
        generated += [token_id(name) for choice in next(chunks)["choices"] for name in choice["logprobs"]["tokens"]]
    probe = client.ask(Ask([*recipient, *generated[: BLOCK_TOKENS + 2]], salt=salt, reuse=False, capture=False))
    assert client.metrics()["vllm:num_requests_running"] == 1, "it was still generating when the other was answered"
    stream.close()
    assert probe.cached_tokens == 0
    (load,) = [event for event in server.events_of(first["id"]) if isinstance(event, Materialized)]
    assert load.reused_tokens > len(document) * 3 // 4, "it was a blend"
    wait_until(lambda: client.metrics()["vllm:num_requests_running"] == 0, "other tests want equal batches")


def test_a_blend_behind_a_true_prefix_leaves_exactly_that_prefix(server: ConnectorServer, texts: Texts) -> None:
    salt, client = "prefix", server.client
    document = texts.passage(0, 600)
    server.wait_for_donor(client.ask(Ask(document, salt=salt)))
    recipient = texts.question([*document[:300], *texts.encode(" (A remark in between.) "), *document[300:]])
    truly_shared = shared_prefix(document, recipient)
    assert truly_shared == 2 * BLOCK_TOKENS
    blended = client.ask(Ask(recipient, max_tokens=8, salt=salt, capture=False))
    assert blended.outcome == REUSED
    assert blended.semblend["exact_prefix_tokens"] == truly_shared
    assert blended.cached_tokens == truly_shared + blended.reused_tokens
    after = client.ask(Ask(recipient, salt=salt, reuse=False, capture=False))
    assert after.cached_tokens == truly_shared
    cold = client.ask(Ask(recipient, salt=salt + "-cold", reuse=False, capture=False))
    assert first_difference(after, cold) <= SPLIT_NOISE


def test_the_cold_answer_is_the_same_to_the_last_bit_before_and_after_blends(
    server: ConnectorServer, texts: Texts
) -> None:
    client = server.client
    document = texts.passage(0, 400)
    recipient = texts.question(document, opening(5))
    before = client.ask(Ask(recipient, max_tokens=4, salt="bits-1", reuse=False, capture=False))
    server.wait_for_donor(client.ask(Ask(document, salt="bits")))
    assert client.ask(Ask(recipient, max_tokens=4, salt="bits", capture=False)).outcome == REUSED
    after = client.ask(Ask(recipient, max_tokens=4, salt="bits", reuse=False, capture=False))
    assert after.cached_tokens == 0
    assert after.top == before.top


def test_a_blended_request_is_no_donor_of_what_it_copied(server: ConnectorServer, texts: Texts) -> None:
    """Generation one is never copied again: the donors of a second recipient are the exact ones."""
    salt, client = "generations", server.client
    document = texts.passage(0, 400)
    donor_id = server.wait_for_donor(client.ask(Ask(document, salt=salt)))
    for seed in (6, 7):
        reply = client.ask(Ask(texts.question(document, opening(seed)), max_tokens=4, salt=salt))
        assert reply.outcome == REUSED
        assert reply.semblend["blend_generation"] == 1
        assert {run["donor_id"] for run in reply.semblend["runs"]} == {donor_id}


def test_the_engine_announces_no_block_of_a_blend(server: ConnectorServer, texts: Texts) -> None:
    salt, client = "announced", server.client
    document = texts.passage(0, 400)
    recipient = texts.question(document, opening(8))
    client.reset()  # from here on, every block in the cache is announced to the listener
    with listening(server.kv_events_endpoint) as announcements:
        numbers = itertools.count()

        def is_received() -> bool:
            client.ask(Ask(texts.passage(0, BLOCK_TOKENS + 1), salt=f"heard-{next(numbers)}", capture=False))
            return len(announcements.all()) > 1

        wait_until(is_received, "the engine did not find its listener")
        server.wait_for_donor(client.ask(Ask(document, salt=salt)))
        wait_until(
            lambda: blocks_of(document) <= announcements.stored_blocks(BLOCK_TOKENS),
            "the donor's own blocks are announced",
        )
        blended = client.ask(Ask(recipient, max_tokens=150, salt=salt, capture=False))
        assert blended.outcome == REUSED
        other = texts.passage(2000, 300)
        client.ask(Ask(other, salt=salt, capture=False))
        wait_until(
            lambda: blocks_of(other) <= announcements.stored_blocks(BLOCK_TOKENS), "a later cold request is announced"
        )
        whole = [*recipient, *blended.tokens]
        assert blocks_of(whole).isdisjoint(announcements.stored_blocks(BLOCK_TOKENS))
        client.ask(Ask(recipient, salt=salt, reuse=False, capture=False))
        wait_until(
            lambda: blocks_of(recipient) <= announcements.stored_blocks(BLOCK_TOKENS),
            "the same, computed cold, is announced",
        )
        announced = announcements.all()
    stored: set[str] = set()
    for event in announced:
        if event["type"] == "BlockStored":
            stored |= set(event["hashes"])
        elif event["type"] == "BlockRemoved":
            assert set(event["hashes"]) <= stored, "nothing is taken back that was never announced"


def blocks_of(tokens: list[int]) -> set[tuple[int, ...]]:
    return {
        tuple(tokens[start : start + BLOCK_TOKENS]) for start in range(0, len(tokens) - BLOCK_TOKENS + 1, BLOCK_TOKENS)
    }
