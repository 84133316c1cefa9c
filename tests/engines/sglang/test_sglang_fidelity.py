"""Reused tokens that are recomputed, and loads that are compared with the model, on a real SGLang server."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from scripts.engines.generate import Reply, flush, generate
from scripts.engines.server import EngineServer
from tests.engines.measured_items import require_each_class_measured
from tests.engines.sglang.event_lines import event_lines
from tests.engines.sglang.running import PAGE_TOKENS, WRONG_KEYS
from tests.engines.sglang.texts import QUESTION, Texts

from semblend.plan.selection import DEFAULT_POLICY

pytestmark = [pytest.mark.engine, pytest.mark.slow]

ALONE = {"reuse": False, "capture": False}
PASSAGE_TOKENS = 240


def ask(server: EngineServer, prompt: list[int], **more: Any) -> Reply:
    return generate(server.base_url, prompt, **{"max_new_tokens": 4, "top_logprobs": 20, **more})


def divergence(cold: Reply, other: Reply) -> float:
    """KL over the cold model's likeliest first tokens; what the other does not name gets its least."""
    named = {token: logprob for logprob, token in other.first_top}
    least = min(named.values())
    return sum(math.exp(p) * (p - named.get(token, least)) for p, token in cold.first_top)


@pytest.fixture
def composed(blending: EngineServer, texts: Texts) -> tuple[list[int], Reply]:
    """A prompt of three passages, each of which the tree holds behind another text; and what the engine says cold."""
    passages = [texts.passage(30000 + 900 * number, PASSAGE_TOKENS) for number in range(3)]
    prompt = [*texts.encode("Three texts follow.\n\n"), *(t for one in passages for t in one), *texts.encode(QUESTION)]
    flush(blending.base_url)
    cold = ask(blending, prompt, semblend=ALONE)
    flush(blending.base_url)
    for number, passage in enumerate(passages):
        before = texts.passage(36000 + 500 * number, 100)
        ask(blending, [*before, *passage, *texts.encode(QUESTION)], max_new_tokens=1)
    return prompt, cold


def materialized(events: Path, rid: str) -> dict[str, Any]:
    return next(line for line in event_lines(events) if line["event"] == "materialized" and line["request_id"] == rid)


def test_a_fraction_of_the_reused_tokens_is_recomputed(
    blending: EngineServer, composed: tuple[list[int], Reply], events: Path
) -> None:
    prompt, cold = composed
    replies = {
        share: ask(blending, prompt, rid=f"share-{share}", semblend={"recompute_fraction": share, "capture": False})
        for share in (0.0, 0.25, 1.0)
    }
    provenances = {share: reply.semblend for share, reply in replies.items()}
    loaded = provenances[0.0]["reused_tokens"]  # type: ignore[index]
    assert loaded > 2 * PASSAGE_TOKENS
    for share, one in provenances.items():
        assert one is not None
        assert (one["compute_share"], one["class"]) == (share, "composition")
        # the exact head of those before is in the tree by now, which moves the claim's end by less than a page
        assert one["reused_tokens"] == pytest.approx((1 - share) * loaded, abs=PAGE_TOKENS)
        assert materialized(events, f"share-{share}")["reused_tokens"] == one["reused_tokens"]
    chosen_by = {share: one["selected_by"] for share, one in provenances.items() if one is not None}
    assert chosen_by == {0.0: None, 0.25: DEFAULT_POLICY, 1.0: DEFAULT_POLICY}
    # With everything computed nothing is left of the other contexts; with a quarter of it, little.
    kl = {share: divergence(cold, reply) for share, reply in replies.items()}
    print(f"KL of the first token by share: { {share: round(value, 4) for share, value in kl.items()} }")
    assert abs(kl[1.0]) < 0.005
    assert kl[0.0] > 2 * max(abs(kl[0.25]), abs(kl[1.0]))


def test_by_default_nothing_is_chosen(blending: EngineServer, composed: tuple[list[int], Reply]) -> None:
    """The engine's own CPU attention would pay for each chosen stretch as for a whole prompt."""
    reply = ask(blending, composed[0], semblend={"capture": False})
    assert reply.semblend is not None
    assert (reply.semblend["compute_share"], reply.semblend["selected_by"]) == (0.0, None)
    assert reply.reused_tokens > PASSAGE_TOKENS


@pytest.fixture
def wrong_keys(events: Path) -> Iterator[Path]:
    path = events.parent / WRONG_KEYS
    yield path
    path.unlink(missing_ok=True)


@pytest.mark.parametrize("too_far", [1, -64])
def test_keys_moved_too_far_are_found_before_they_are_read(
    blending: EngineServer,
    texts: Texts,
    composed: tuple[list[int], Reply],
    events: Path,
    wrong_keys: Path,
    too_far: int,
) -> None:
    prompt, cold = composed
    wrong_keys.write_text(str(too_far))
    reply = ask(blending, prompt, rid=f"wrong-{too_far}", semblend={"capture": False})
    assert reply.reused_tokens == 0
    assert reply.tokens == cold.tokens
    faults = [line for line in event_lines(events) if line["event"] == "fault_contained"]
    assert [fault["stage"] for fault in faults if fault["request_id"] == f"wrong-{too_far}"] == ["holes"]
    assert "differs from the model" in faults[-1]["error"]
    wrong_keys.unlink()
    other = [*texts.encode("Read them again.\n\n"), *prompt]  # the prompt itself was computed, and is in the tree
    assert ask(blending, other, semblend={"capture": False}).reused_tokens > 0


def test_each_class_is_measured_by_the_bench(blending: EngineServer) -> None:
    flush(blending.base_url)
    require_each_class_measured(blending.base_url, "unused", "sglang_generate")
