"""100 requests at once on a cache far too small for them, some of them given up by their clients.

What must hold afterwards: no client got an error, no block and no byte is left behind, and requests that were not
blended got what the same engine answers when asked alone. (Not the engine without any connector: vLLM computes other
last bits as soon as one is configured, its own example connector included.) Batches are composed by chance, and sums of
decoding depend on them, so texts are held together token by token: at the first difference the engine's own two
candidates must be nearly tied, and up to there the likelihoods agree as far as a crowd without any reuse agrees with
itself alone.
"""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

import pytest
from tests.engines.vllm.connector.client import Ask, Client, Reply, first_difference, largest_difference
from tests.engines.vllm.connector.connector_server import ConnectorServer
from tests.engines.vllm.connector.kinds import CROWDED, CROWDED_HOST_BYTES
from tests.engines.vllm.connector.prompts import Texts, opening
from tests.waiting import wait_until

from semblend.contract import FaultContained

pytestmark = [
    pytest.mark.engine,
    pytest.mark.slow,
    pytest.mark.parametrize("server", [CROWDED], indirect=True),
]

REQUESTS = 100
DOCUMENTS = 6
DOCUMENT_TOKENS = 300
SQUEEZED = 10  # 3 blocks each at first, 5 at the end, and the cache has 32
SQUEEZED_TOKENS = 200
SQUEEZES = 5
PLAIN_CROWD = 16
COMPARED = 20
ROUNDING = 0.01  # nats; measured: 0.000
WRONG_ANSWER = 0.5  # nats: what a foreign block in the context does to an answer begins above
MEMORY_SLACK_BYTES = 400 << 20


@dataclass(slots=True)
class Crowd:
    """Everything that came of it, in no particular order."""

    asked: int
    replies: list[tuple[Ask, Reply]] = field(default_factory=list)
    given_up: int = 0
    errors: list[str] = field(default_factory=list)

    def add(self, other: Crowd) -> None:
        self.asked += other.asked
        self.replies += other.replies
        self.given_up += other.given_up
        self.errors += other.errors


def requests(texts: Texts, chance: random.Random) -> list[tuple[Ask, bool]]:
    """Asks, and whether their client will give up: blends, exact repeats, strangers, several choices, long answers."""
    documents = [texts.passage(n * DOCUMENT_TOKENS, DOCUMENT_TOKENS) for n in range(DOCUMENTS)]
    asks = []
    for number in range(REQUESTS):
        document = chance.choice(documents)
        new = texts.question(document, opening(1000 + number))
        match number % 10:
            case 0 | 1 | 2 | 3:
                ask = Ask(new, max_tokens=8, salt="crowd")
            case 4 | 5:
                ask = Ask(texts.question(documents[0]), max_tokens=8, salt="crowd")
            case 6:
                ask = Ask(new, max_tokens=8, salt=f"stranger-{number}")
            case 7:
                ask = Ask(new, max_tokens=8, salt="crowd", reuse=False)
            case 8:
                ask = Ask(new, max_tokens=6, salt="crowd", n=2)
            case _:
                ask = Ask(new, max_tokens=120, salt="crowd" if number % 20 == 9 else f"long-{number}")
        asks.append((ask, chance.random() < 0.15))
    return asks


def let_loose(client: Client, asks: list[tuple[Ask, bool]], seed: int) -> Crowd:
    crowd, lock = Crowd(len(asks)), threading.Lock()

    def one(ask: Ask, gives_up: bool, patience: int) -> None:
        try:
            if gives_up:
                stream = client.stream(ask)
                list(itertools.islice(stream, patience))
                stream.close()
                with lock:
                    crowd.given_up += 1
            else:
                reply = client.ask(ask)
                with lock:
                    crowd.replies.append((ask, reply))
        except Exception as error:  # noqa: BLE001 - whatever it was, the test must hear of it
            with lock:
                crowd.errors.append(f"{type(error).__name__}: {error}")

    chance = random.Random(seed)
    threads = [threading.Thread(target=one, args=(ask, gives_up, chance.randrange(1, 6))) for ask, gives_up in asks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return crowd


def complete(client: Client, texts: Texts, crowd: Crowd) -> None:
    """Make sure of what a crowd does by chance: which requests run at the same time depends on the machine.

    One prompt twice in a row is an exact hit. Answers whose beginnings fit into the cache together and whose ends do
    not, until the engine has preempted.
    """
    document = texts.passage(0, DOCUMENT_TOKENS)
    for number in range(2):
        crowd.add(let_loose(client, [(Ask(texts.question(document), 8, "crowd"), False)], seed=number))
    for attempt in range(SQUEEZES):
        if client.metrics()["vllm:num_preemptions_total"]:
            return
        asks = [
            Ask(texts.question(document, opening(5000 + attempt * SQUEEZED + n)), SQUEEZED_TOKENS, "crowd")
            for n in range(SQUEEZED)
        ]
        crowd.add(let_loose(client, [(ask, False) for ask in asks], seed=attempt))


@pytest.fixture(scope="module")
def crowd(server: ConnectorServer, texts: Texts) -> Crowd:
    client = server.client
    for number in range(DOCUMENTS):
        client.ask(Ask(texts.passage(number * DOCUMENT_TOKENS, DOCUMENT_TOKENS), salt="crowd"))
    crowd = let_loose(client, requests(texts, random.Random(0)), seed=1)
    complete(client, texts, crowd)
    return crowd


def test_no_client_gets_an_error(crowd: Crowd, server: ConnectorServer) -> None:
    assert crowd.errors == []
    assert crowd.given_up >= REQUESTS // 10
    assert len(crowd.replies) + crowd.given_up == crowd.asked >= REQUESTS
    assert server.client.is_healthy()
    for ask, reply in crowd.replies:
        assert len(reply.tokens) == ask.max_tokens
        assert len(reply.body["choices"]) == ask.n


def test_it_was_a_crowd(crowd: Crowd, server: ConnectorServer) -> None:
    """Preemptions, blends, exact hits and refusals all happened, or the other tests prove nothing."""
    assert server.client.metrics()["vllm:num_preemptions_total"] > 0
    outcomes = [reply.outcome for _, reply in crowd.replies]
    assert outcomes.count("backend_materialized_reuse") >= 10
    assert outcomes.count("exact_prefix") >= 1
    assert outcomes.count("cold_fallback") >= 5


def test_usage_is_truthful_in_the_crowd_too(crowd: Crowd) -> None:
    for _, reply in crowd.replies:
        assert reply.semblend["reused_tokens"] == reply.kept_tokens
        assert reply.cached_tokens >= reply.semblend["reused_tokens"]
        assert reply.cached_tokens < reply.prompt_tokens


def test_no_block_and_no_byte_is_left_behind(crowd: Crowd, server: ConnectorServer) -> None:
    client = server.client
    assert crowd.replies
    wait_until(lambda: client.metrics()["vllm:num_requests_running"] == 0, "requests run on without clients")
    wait_until(lambda: client.metrics()["vllm:kv_cache_usage_perc"] == 0.0, "blocks are still in use")
    client.reset()  # refused as long as a block is held
    assert [event for event in server.events() if isinstance(event, FaultContained)] == []
    held = client.metrics()["vllm:semblend_host_bytes"]
    assert 0 < held <= CROWDED_HOST_BYTES


@pytest.mark.nightly  # the memory of a process is not ours alone
def test_memory_does_not_grow_with_the_crowd(crowd: Crowd, server: ConnectorServer, texts: Texts) -> None:
    assert crowd.replies
    before = server.resident_bytes()
    again = let_loose(server.client, requests(texts, random.Random(0))[: REQUESTS // 4], seed=2)
    assert again.errors == []
    assert server.resident_bytes() - before < MEMORY_SLACK_BYTES


@pytest.mark.nightly  # compares samples: the batches of a crowd are composed by chance
def test_who_was_not_blended_got_what_the_engine_says_when_asked_alone(crowd: Crowd, server: ConnectorServer) -> None:
    """As near to it as a crowd without any reuse is, and one step more."""
    client = server.client
    served = [(ask, reply) for ask, reply in crowd.replies if not reply.reused_tokens and ask.n == 1]
    assert len(served) >= 20
    served = served[:COMPARED]
    plain = [replace(ask, salt=f"plain-{n}", reuse=False, capture=False) for n, (ask, _) in enumerate(served)]
    with ThreadPoolExecutor(PLAIN_CROWD) as pool:
        crowded = list(pool.map(client.ask, plain))
    alone = [client.ask(replace(ask, salt=f"alone-{n}")) for n, ask in enumerate(plain)]
    ours = [reply for _, reply in served]
    for measure in (first_difference, furthest):
        noise, seen = ordered(measure, crowded, alone), ordered(measure, ours, alone)
        summary = f"{measure.__name__}: {middle(seen):.3f}..{seen[-1]:.3f}, plain {middle(noise):.3f}..{noise[-1]:.3f}"
        assert middle(seen) <= middle(noise) + ROUNDING, summary
        assert seen[-1] < WRONG_ANSWER, summary


def ordered(measure: Callable[[Reply, Reply], float], ours: Sequence[Reply], theirs: Sequence[Reply]) -> list[float]:
    return sorted(measure(one, other) for one, other in zip(ours, theirs, strict=True))


def middle(ordered: Sequence[float]) -> float:
    return ordered[len(ordered) // 2]


def furthest(reply: Reply, alone: Reply) -> float:
    """The largest difference of likelihoods up to the first differing token, and how far that was from a tie."""
    largest = 0.0
    for token, expected, likely, stock in zip(reply.tokens, alone.tokens, reply.top, alone.top, strict=True):
        largest = max(largest, largest_difference(likely, stock))
        if token != expected:
            return max(largest, stock[expected] - stock.get(token, float("-inf")))
    return largest
