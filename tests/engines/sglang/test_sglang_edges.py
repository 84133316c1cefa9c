"""Page size 1 and a prompt computed in chunks, clients that go away in the middle, and what is found by meaning while a
request waits: on a real SGLang server."""

from __future__ import annotations

import http.client
import itertools
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from scripts.engines.generate import flush, generate
from scripts.engines.server import EngineServer
from tests.engines.sglang.event_lines import event_lines
from tests.engines.sglang.running import start
from tests.engines.sglang.texts import QUESTION, Texts
from tests.waiting import wait_until

pytestmark = [pytest.mark.engine, pytest.mark.slow]

ALONE = {"reuse": False, "capture": False}
PASSAGE_TOKENS = 480
CHUNK_TOKENS = 256


@pytest.fixture(scope="module")
def edge_events(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("edges") / "events.jsonl"


@pytest.fixture(scope="module")
def server(edge_events: Path) -> Iterator[EngineServer]:
    flags = ("--page-size", "1", "--chunked-prefill-size", str(CHUNK_TOKENS), "--max-total-tokens", "6144")
    with start(edge_events, *flags, environment={"SEMBLEND_EMBEDDER": "jaccard"}) as running:
        yield running


def test_single_tokens_and_chunks_before_and_behind_loaded_kv(server: EngineServer, texts: Texts) -> None:
    """The donor itself comes in chunks; the recipient's tail behind the loaded passage is longer than one."""
    passage, tail = texts.passage(1000, PASSAGE_TOKENS), texts.passage(9000, 2 * CHUNK_TOKENS)
    opening = texts.encode("You are a patient reader of two texts.\n\n")
    prompt = [*opening, *passage, *tail, *texts.encode(QUESTION)]
    flush(server.base_url)
    cold = generate(server.base_url, prompt, max_new_tokens=8, semblend=ALONE)
    assert cold.cached_tokens == 0
    flush(server.base_url)
    generate(server.base_url, texts.question(passage, 1), max_new_tokens=1)
    blended = generate(server.base_url, prompt, max_new_tokens=8)
    assert blended.reused_tokens > 0.8 * PASSAGE_TOKENS
    assert blended.tokens[0] == cold.tokens[0]
    again = generate(server.base_url, prompt, max_new_tokens=8, semblend=ALONE)
    assert blended.semblend is not None
    assert again.cached_tokens <= blended.semblend["exact_tokens"]
    assert again.tokens == cold.tokens
    # What follows is not a question and is not computed in one step: policies that need a question cannot choose, and
    # the answer says so.
    other = [*texts.encode("Once more.\n\n"), *prompt]
    chosen = generate(server.base_url, other, max_new_tokens=1, semblend={"recompute_fraction": 0.1, "capture": False})
    assert chosen.semblend is not None
    assert chosen.semblend["selected_by"] == "first"
    assert 0 < chosen.reused_tokens < blended.reused_tokens


def test_more_holes_than_one_step_computes_are_not_promised(server: EngineServer, texts: Texts) -> None:
    """A passage behind more new tokens than a chunk: the engine computes them, in chunks, and nothing is lost."""
    passage, head = texts.passage(2000, PASSAGE_TOKENS), texts.passage(11000, 2 * CHUNK_TOKENS)
    prompt = [*head, *passage, *texts.encode(QUESTION)]
    flush(server.base_url)
    cold = generate(server.base_url, prompt, max_new_tokens=8, semblend=ALONE)
    flush(server.base_url)
    generate(server.base_url, texts.question(passage, 2), max_new_tokens=1)
    served = generate(server.base_url, prompt, max_new_tokens=8)
    assert served.reused_tokens == 0
    assert served.tokens == cold.tokens


def test_together_more_holes_than_a_step_computes_wait_for_their_turn(server: EngineServer, texts: Texts) -> None:
    """Each has some 100 tokens of its own before what it loads: of six at once, a step of 256 takes a part."""
    passage = texts.passage(5000, PASSAGE_TOKENS)
    flush(server.base_url)
    generate(server.base_url, texts.question(passage, 20), max_new_tokens=1)
    prompts = [[*texts.passage(18000 + 100 * n, 100), *passage, *texts.encode(QUESTION)] for n in range(6)]
    one_by_one = [generate(server.base_url, prompt, max_new_tokens=4) for prompt in prompts]
    flush(server.base_url)
    generate(server.base_url, texts.question(passage, 20), max_new_tokens=1)
    with ThreadPoolExecutor(len(prompts)) as pool:
        together = list(pool.map(lambda prompt: generate(server.base_url, prompt, max_new_tokens=4), prompts))
    assert [reply.tokens for reply in together] == [reply.tokens for reply in one_by_one]
    computed = [reply.semblend["computed_tokens"] for reply in together if reply.semblend is not None]
    assert len(computed) == len(prompts), "all were blended"
    assert sum(computed) > CHUNK_TOKENS, "or nothing is shown"
    flush(server.base_url)


def test_a_client_that_leaves_while_it_is_answered(server: EngineServer, texts: Texts, edge_events: Path) -> None:
    passage = texts.passage(3000, PASSAGE_TOKENS)
    flush(server.base_url)
    generate(server.base_url, texts.question(passage, 3), max_new_tokens=1)
    leave_early(server, texts.question(passage, 4), "leaves-1", lambda answer: answer.readline())
    wait_until(lambda: "leaves-1" in materialized(edge_events))
    assert_sound(server, texts, passage, 5)


def test_a_client_that_leaves_before_its_turn(server: EngineServer, texts: Texts, edge_events: Path) -> None:
    """Its look-up has promised tokens, or is about to, while another prompt is computed in front of it."""
    passage, long = texts.passage(4000, PASSAGE_TOKENS), texts.passage(13000, 1500)
    flush(server.base_url)
    generate(server.base_url, texts.question(passage, 6), max_new_tokens=1)
    others = [threading.Thread(target=generate, args=(server.base_url, long), kwargs={"max_new_tokens": 8})]
    others[0].start()
    leave_early(server, texts.question(passage, 7), "leaves-2", lambda _: None)
    others[0].join(timeout=300)
    assert_sound(server, texts, passage, 8)


def test_a_waiting_text_in_other_words_is_found_by_meaning_and_not_loaded(
    server: EngineServer, texts: Texts, edge_events: Path
) -> None:
    """Sentences of a donor, every few words changed: similar to the embedder, without a run of equal tokens.

    It must come while the engine computes another prompt. Where it came too late, both are repeated.
    """
    words = [f"word{number} about ferries and harbours" for number in range(60)]
    reworded = " ".join(word if number % 4 else f"{word} too" for number, word in enumerate(words))
    rounds = itertools.count()

    def is_found() -> bool:
        round_ = next(rounds)
        flush(server.base_url)
        generate(server.base_url, texts.encode(" ".join(words)), max_new_tokens=1)
        long = threading.Thread(
            target=generate,
            args=(server.base_url, texts.passage(15000, 3000)),
            kwargs={"max_new_tokens": 1, "rid": f"in-front-{round_}"},
        )
        long.start()
        wait_until(lambda: f"in-front-{round_}" in similarities(edge_events))  # its chunks are being computed
        reply = generate(server.base_url, texts.encode(reworded), max_new_tokens=1, rid=f"reworded-{round_}")
        long.join(timeout=300)
        assert reply.reused_tokens == 0
        found = similarities(edge_events)
        assert found[f"in-front-{round_}"] is None, "it found an idle engine, and nothing like it is held"
        similarity = found[f"reworded-{round_}"]
        assert similarity is None or similarity > 0.5
        return similarity is not None

    wait_until(is_found, "nothing was found by meaning while a request waited")


def similarities(events: Path) -> dict[str, float | None]:
    """Of every request that was looked up, what the semantic path made of it."""
    return {row["request_id"]: row["similarity"] for row in sound_rows(events) if row["event"] == "lookup_finished"}


def leave_early(server: EngineServer, prompt: Sequence[int], rid: str, read: Callable[[Any], object]) -> None:
    """Sends a streamed request of many tokens, reads what ``read`` does of the answer, and closes the connection."""
    sampling = {"temperature": 0, "max_new_tokens": 400, "ignore_eos": True}
    body = {"input_ids": list(prompt), "sampling_params": sampling, "stream": True, "rid": rid}
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=300)
    try:
        connection.request("POST", "/generate", json.dumps(body), {"Content-Type": "application/json"})
        read(connection.getresponse())
    finally:
        connection.close()


def assert_sound(server: EngineServer, texts: Texts, passage: Sequence[int], seed: int) -> None:
    """The donor is still good for others, every slot comes back, and the engine complains of nothing."""
    assert generate(server.base_url, texts.question(passage, seed), max_new_tokens=4).reused_tokens > 0
    flush(server.base_url)  # refused while a request still holds something
    log = server.log_path.read_text(encoding="utf-8", errors="replace")
    assert "leak" not in log.lower()
    assert server.stays_healthy()


def materialized(events: Path) -> set[str]:
    return {row["request_id"] for row in sound_rows(events) if row["event"] == "materialized"}


def sound_rows(events: Path) -> list[dict[str, Any]]:
    rows = event_lines(events)
    assert not [row for row in rows if row["event"] == "fault_contained"]
    return rows
