"""Whatever breaks inside the connector ends in the cold answer and an event; the next request works as ever."""

from __future__ import annotations

import itertools

import pytest
from tests.engines.vllm.connector.client import Ask, Client, Reply, first_difference
from tests.engines.vllm.connector.connector_server import ConnectorServer
from tests.engines.vllm.connector.kinds import FAULTY, FAULTY_BLOCKS
from tests.engines.vllm.connector.prompts import BLOCK_TOKENS, Texts, opening
from tests.waiting import wait_until

from semblend.contract import FaultContained

pytestmark = [
    pytest.mark.engine,
    pytest.mark.slow,
    pytest.mark.parametrize("server", [FAULTY], indirect=True),
]

REUSED = "backend_materialized_reuse"
SPLIT_NOISE = 0.01  # see test_exactness.py
_seeds = itertools.count(100)


@pytest.fixture
def intact(server: ConnectorServer) -> ConnectorServer:
    server.set_fault()
    return server


def recipient_of(texts: Texts, document: list[int]) -> list[int]:
    return texts.question(document, opening(next(_seeds)))


def salt_of(test: str, fault: str) -> str:
    """A tenant of its own, also when a failed test runs again."""
    return f"{test}-{fault}-{next(_seeds)}"


def cold_answer(client: Client, prompt: list[int]) -> Reply:
    return client.ask(Ask(prompt, max_tokens=4, salt=f"cold-{next(_seeds)}", reuse=False, capture=False))


def faults(server: ConnectorServer, reply: Reply) -> list[FaultContained]:
    return [event for event in server.events_of(reply) if isinstance(event, FaultContained)]


def counted_faults(client: Client, stage: str) -> float:
    return client.metrics().get(f'vllm:semblend_faults_total{{stage="{stage}"}}', 0.0)


@pytest.mark.parametrize(
    ("fault", "stage"),
    [
        ("lookup", "lookup"),
        ("lookup_late", "lookup"),
        ("allocate", "allocate"),
        ("allocate_late", "allocate"),
        ("store_missing", "load"),
        ("store_truncated", "load"),
        ("write", "load"),
        ("sparse_forward", "load"),
        ("rope:1", "load"),
        ("rows_of_others", "load"),
    ],
)
def test_a_blend_that_breaks_gives_the_cold_answer(
    intact: ConnectorServer, texts: Texts, fault: str, stage: str
) -> None:
    client, salt = intact.client, salt_of("broken", fault)
    document = texts.passage(0, 300)
    intact.wait_for_donor(client.ask(Ask(document, salt=salt)))
    prompt = recipient_of(texts, document)
    cold = cold_answer(client, prompt)
    before = counted_faults(client, stage)

    intact.set_fault(fault)
    broken = client.ask(Ask(prompt, max_tokens=4, salt=salt, capture=False))
    intact.set_fault()
    assert broken.reused_tokens == 0
    assert broken.semblend["runs"] == []
    assert broken.semblend["reason"] == "internal_error"
    assert broken.cached_tokens == 0, "usage does not claim what the engine computed"
    assert first_difference(broken, cold) <= SPLIT_NOISE
    contained = faults(intact, broken)
    assert contained[0].stage == stage  # workers report a broken command once more
    if fault in ("rope:1", "rows_of_others"):  # nothing was raised: what was loaded is not what the model has there
        assert "differs from the model" in contained[0].error
    elif not fault.startswith("store"):
        assert "InjectedFault" in contained[0].error

    # Nothing of the attempt is left behind: neither as exact blocks, beyond those the request itself computed, ...
    exact = client.ask(Ask(prompt, max_tokens=4, salt=salt, reuse=False, capture=False))
    assert first_difference(exact, cold) <= SPLIT_NOISE
    # ... nor in the way of the next recipient, which finds the donor unless it was the donor that broke.
    other = client.ask(Ask(recipient_of(texts, document), max_tokens=4, salt=salt, capture=False))
    if fault.startswith("store"):
        assert other.outcome in {"cold_fallback", "backend_declined_reuse"}
    else:
        assert other.outcome == REUSED
    wait_until(lambda: counted_faults(client, stage) > before, f"no fault of stage {stage} was counted")


@pytest.mark.parametrize("fault", ["capture", "capture_begin"])
def test_a_capture_that_breaks_leaves_no_donor(intact: ConnectorServer, texts: Texts, fault: str) -> None:
    client, salt = intact.client, salt_of("uncaptured", fault)
    document = texts.passage(700, 300)
    before = counted_faults(client, "capture")
    intact.set_fault(fault)
    reply = client.ask(Ask(document, max_tokens=4, salt=salt))
    wait_until(lambda: bool(faults(intact, reply)), "the capture broke unnoticed")
    intact.set_fault()
    assert [event.stage for event in faults(intact, reply)] == ["capture"]
    assert first_difference(reply, cold_answer(client, document)) <= SPLIT_NOISE
    missed = client.ask(Ask(recipient_of(texts, document), max_tokens=4, salt=salt))
    assert missed.outcome == "cold_fallback"
    assert missed.semblend["reason"] == "no_candidate"
    assert counted_faults(client, "capture") > before
    # The request that found nothing was captured in its turn, without a fault.
    intact.wait_for_donor(missed)
    assert client.ask(Ask(recipient_of(texts, document), salt=salt, capture=False)).outcome == REUSED


@pytest.mark.parametrize("fault", ["arrive", "finish", "finish_late", "orders", "news"])
def test_a_fault_beside_the_load_costs_at_most_the_reuse(intact: ConnectorServer, texts: Texts, fault: str) -> None:
    client, salt = intact.client, salt_of("beside", fault)
    document = texts.passage(1300, 300)
    intact.wait_for_donor(client.ask(Ask(document, salt=salt)))
    prompt = recipient_of(texts, document)
    before = len([e for e in intact.events() if isinstance(e, FaultContained)])
    intact.set_fault(fault)
    reply = client.ask(Ask(prompt, max_tokens=4, salt=salt, capture=False))
    intact.set_fault()
    assert len(reply.tokens) == 4
    stages = [e.stage for e in intact.events() if isinstance(e, FaultContained)][before:]
    assert fault.removesuffix("_late") in stages
    # Whether it was blended or not, nothing approximate may be in the exact cache now.
    after = client.ask(Ask(prompt, max_tokens=4, salt=salt, reuse=False, capture=False))
    if fault != "arrive":
        assert after.cached_tokens == 0
    assert first_difference(after, cold_answer(client, prompt)) <= SPLIT_NOISE
    assert client.ask(Ask(recipient_of(texts, document), salt=salt, capture=False)).outcome == REUSED


@pytest.mark.parametrize("fault", ["finish", "finish_late", "orders_late"])
def test_a_donor_whose_end_breaks_is_either_whole_or_gone(intact: ConnectorServer, texts: Texts, fault: str) -> None:
    """The engine takes the blocks back at once: a copy made of them later would be of another request's KV."""
    client, salt = intact.client, salt_of("donor", fault)
    document = texts.passage(1900, 300)
    intact.set_fault(fault)
    client.ask(Ask(document, salt=salt))
    for number in range(FAULTY_BLOCKS // 4):  # new owners of those blocks
        client.ask(Ask(texts.passage(2500, 4 * BLOCK_TOKENS), salt=f"{salt}-{number}", capture=False))
    intact.set_fault()  # not before: the commands after the donor's last step have to break as well
    prompt = recipient_of(texts, document)
    cold = cold_answer(client, prompt)
    missed = client.ask(Ask(prompt, max_tokens=4, salt=salt, capture=False))
    assert missed.outcome == "cold_fallback"
    assert first_difference(missed, cold) <= SPLIT_NOISE
    client.reset()  # refused as long as a block is held


def test_after_these_faults_no_block_is_held(intact: ConnectorServer) -> None:
    """A reset succeeds only when no block is held."""
    intact.client.reset(donors=True)
    wait_until(lambda: intact.client.metrics()["vllm:kv_cache_usage_perc"] == 0.0, "blocks are still in use")
    assert intact.client.is_healthy()
