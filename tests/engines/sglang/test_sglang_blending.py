"""Non-prefix reuse on a real SGLang server: confirmed by the backend, private to the request, cold when in doubt."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from scripts.engines.generate import Reply, flush, generate
from scripts.engines.server import EngineServer
from tests.engines.sglang.event_lines import event_lines
from tests.engines.sglang.running import PAGE_TOKENS
from tests.engines.sglang.texts import Texts
from tests.waiting import wait_until

pytestmark = [pytest.mark.engine, pytest.mark.slow]

ALONE = {"reuse": False, "capture": False}
PASSAGE_TOKENS = 480


def ask(server: EngineServer, prompt: Sequence[int], **more: Any) -> Reply:
    return generate(server.base_url, prompt, **{"max_new_tokens": 8, **more})


def cold(server: EngineServer, prompt: Sequence[int], **more: Any) -> Reply:
    """What the engine says with nothing in its cache."""
    flush(server.base_url)
    reply = ask(server, prompt, semblend=ALONE, **more)
    assert reply.cached_tokens == 0
    flush(server.base_url)
    return reply


def happened(events: Path, kind: str, rid: str) -> list[dict[str, Any]]:
    return [line for line in event_lines(events) if line["event"] == kind and line.get("request_id") == rid]


def test_the_engine_runs_our_backend(blending: EngineServer) -> None:
    log = blending.log_path.read_text(encoding="utf-8", errors="replace")
    assert "source=registered('semblend') impl=SemBlendRadixCache" in log
    assert "SemBlend is ready: self-test passed, forward hook in place" in log


def test_the_same_document_under_a_new_instruction_is_reused_and_stays_private(
    blending: EngineServer, texts: Texts, events: Path
) -> None:
    passage = texts.passage(1000, PASSAGE_TOKENS)
    donor, prompt = texts.question(passage, 1), texts.question(passage, 2)
    before = cold(blending, prompt)
    ask(blending, donor, rid="donor-1")
    blended = ask(blending, prompt, rid="recipient-1")
    assert blended.semblend is not None
    assert blended.semblend["outcome"] == "backend_materialized_reuse"
    assert blended.reused_tokens > 0.8 * PASSAGE_TOKENS
    assert blended.tokens[0] == before.tokens[0]
    assert happened(events, "donor_registered", "donor-1")
    assert happened(events, "materialized", "recipient-1")[0]["reused_tokens"] == blended.reused_tokens
    # What is in the tree now is what was computed exactly, and gives the answer of cold prefill.
    again = ask(blending, prompt, semblend=ALONE)
    assert again.cached_tokens <= blended.semblend["exact_tokens"]
    assert again.tokens == before.tokens
    assert again.reused_tokens == 0
    exact = ask(blending, donor)
    assert exact.cached_tokens >= len(donor) - 1 - PAGE_TOKENS, "the donor is still there"


def test_the_same_prompt_again_is_an_exact_hit_and_not_ours(blending: EngineServer, texts: Texts) -> None:
    flush(blending.base_url)
    prompt = texts.question(texts.passage(2000, PASSAGE_TOKENS), 3)
    first = ask(blending, prompt)
    again = ask(blending, prompt)
    assert again.cached_tokens > len(prompt) - 1 - PAGE_TOKENS
    assert again.reused_tokens == 0
    assert again.tokens == first.tokens


def test_tenants_do_not_meet(blending: EngineServer, texts: Texts) -> None:
    passage = texts.passage(3000, PASSAGE_TOKENS)
    donor, prompt = texts.question(passage, 4), texts.question(passage, 5)
    flush(blending.base_url)
    ask(blending, donor, extra_key="tenant-a")
    assert ask(blending, prompt, extra_key="tenant-b").reused_tokens == 0
    assert ask(blending, prompt).reused_tokens == 0
    assert ask(blending, texts.question(passage, 6), extra_key="tenant-a").reused_tokens > 0


def test_a_flush_forgets_every_donor(blending: EngineServer, texts: Texts) -> None:
    passage = texts.passage(4000, PASSAGE_TOKENS)
    ask(blending, texts.question(passage, 7))
    flush(blending.base_url)
    assert ask(blending, texts.question(passage, 8)).reused_tokens == 0


def test_a_donor_the_engine_evicted_means_cold_prefill(blending: EngineServer, texts: Texts) -> None:
    passage = texts.passage(5000, PASSAGE_TOKENS)
    prompt = texts.question(passage, 9)
    before = cold(blending, prompt)
    ask(blending, texts.question(passage, 10))
    for number in range(6):  # more than the pool holds
        ask(blending, texts.passage(20000 + 1600 * number, 1600), max_new_tokens=1, semblend=ALONE)
    after = ask(blending, prompt)
    assert after.reused_tokens == 0
    assert after.tokens == before.tokens


def test_the_prompts_own_tokens_can_be_scored_behind_loaded_kv(blending: EngineServer, texts: Texts) -> None:
    passage, following = texts.passage(6000, PASSAGE_TOKENS), texts.passage(6000 + PASSAGE_TOKENS, 32)
    opening = texts.encode("You read texts aloud.\n\n")
    prompt = [*opening, *passage, *following]
    start = len(opening) + len(passage)
    before = cold(blending, prompt, score_from=start)
    ask(blending, texts.question(passage, 11))
    blended = ask(blending, prompt, score_from=start)
    assert blended.reused_tokens > 0
    assert len(blended.forced) == len(before.forced) > 0
    loss = [sum(reply.forced) / len(reply.forced) for reply in (before, blended)]
    assert abs(loss[0] - loss[1]) < 0.2


def test_blended_plain_and_retracted_requests_side_by_side(blending: EngineServer, texts: Texts, events: Path) -> None:
    """Two plain requests decode, two blended ones join; the engine sends the youngest back to its queue, often.

    Whether a blended one is among those depends on when the requests arrive: they are repeated until one was. What must
    hold, holds every time.
    """
    passages = [texts.passage(14000 + 600 * number, PASSAGE_TOKENS) for number in range(4)]
    prompts = [texts.question(passage, 20 + number) for number, passage in enumerate(passages)]
    alone = [cold(blending, prompt, max_new_tokens=24) for prompt in prompts]
    rounds = itertools.count()

    def was_retracted() -> bool:
        """A blended request that lost its KV was planned again with what it had generated, and blended again."""
        name = f"crowd-{next(rounds)}"
        flush(blending.base_url)
        for passage in passages[:2]:
            ask(blending, texts.question(passage, 30), max_new_tokens=1)
        together: dict[int, Reply] = {}

        def one(number: int) -> None:
            together[number] = ask(blending, prompts[number], max_new_tokens=24, rid=f"{name}-{number}")

        threads = {number: threading.Thread(target=one, args=(number,)) for number in range(4)}
        for number in (2, 3):
            threads[number].start()
        wait_until(lambda: happened(events, "donor_registered", f"{name}-2"))
        for number in (0, 1):
            threads[number].start()
        for thread in threads.values():
            thread.join(timeout=600)
        assert len(together) == 4
        for number in (0, 1):
            assert happened(events, "materialized", f"{name}-{number}")
            assert together[number].tokens[0] == alone[number].tokens[0]
            assert len(together[number].tokens) == 24
        for number in (2, 3):
            assert together[number].reused_tokens == 0
            assert together[number].tokens == alone[number].tokens
        planned = [line for number in (0, 1) for line in happened(events, "lookup_finished", f"{name}-{number}")]
        return any(line["prompt_tokens"] > max(map(len, prompts[:2])) for line in planned)

    wait_until(was_retracted, "no blended request was sent back to the queue")


def test_nothing_leaked_and_nothing_was_contained(blending: EngineServer, events: Path) -> None:
    flush(blending.base_url)
    log = blending.log_path.read_text(encoding="utf-8", errors="replace")
    assert "leak" not in log.lower()
    faults = [line for line in event_lines(events) if line["event"] == "fault_contained"]
    assert not [fault for fault in faults if not fault["request_id"].startswith("wrong-")], "but those made on purpose"
    assert blending.stays_healthy()
