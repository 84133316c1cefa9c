"""120 chats through a real ``semgate proxy``, redacted and with text: the same reuse at any position within 1 %."""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path

import pytest
from tests.fakes.raw_client import ask
from tests.fakes.scripted_upstream import scripted
from tests.unit.sembase.counted_reuse import counted_reuse
from tests.unit.sembase.exact_reuse import exact_reuse
from tests.unit.semgate.proxy.running_proxy import CHAT, chat_body, play, proxy_process, stream_three_tokens

from sembase.trace.build import in_time_order
from sembase.trace.load import read_records
from sembase.trace.token_rows import TokenRows

CHATS = 120
WORDS = [
    f"{start}{end}" for start in ("har", "led", "sig", "bri", "fer", "arc") for end in ("bour", "ger", "nal", "ry")
]


def bodies() -> list[bytes]:
    """Passages in changing order under one instruction, then a question: retrieval without a common prefix."""
    draws = random.Random(17)
    passages = [
        "\n\n".join(" ".join(draws.choices(WORDS, k=draws.randint(30, 90))) for _ in range(2)) for _ in range(12)
    ]
    texts = []
    for number in range(CHATS):
        question = f"Question {number}: " + " ".join(draws.choices(WORDS, k=draws.randint(5, 40)))
        texts.append("\n\n".join(["Answer from the passages.", *draws.sample(passages, 3), question]))
    return [chat_body(text, user=f"u{number % 9}") for number, text in enumerate(texts)]


async def record(folder: Path, redact_text: str) -> None:
    async with (
        scripted(stream_three_tokens) as upstream,
        proxy_process(upstream.origin, folder, "--redact-text", redact_text) as (port, _),
    ):
        for body in bodies():
            assert (await ask(port, CHAT, body)).status == 200


def test_redacted_chats_show_the_reuse_that_their_texts_show(tmp_path: Path) -> None:
    for name, redact in (("redacted", "true"), ("texts", "false")):
        play(partial(record, tmp_path / name, redact))
    redacted, texts = (
        counted_reuse(in_time_order(read_records(tmp_path / name / "traces"), name)) for name in ("redacted", "texts")
    )
    rows = TokenRows()
    exact = exact_reuse([rows.of_record(each) for each in read_records(tmp_path / "texts" / "traces")])
    exact_tokens = int(exact.either.sum())
    print(
        f"{CHATS} chats, {texts.prompt_tokens} tokens: prefix {exact.prefix.sum()}, any position: all tokens "
        f"{exact_tokens}, text {texts.either_tokens}, redacted {redacted.either_tokens}"
    )
    assert redacted.shown == texts.shown == {"any_position": CHATS}
    assert redacted.prompt_tokens == texts.prompt_tokens
    assert redacted.either_tokens == pytest.approx(texts.either_tokens, rel=0.01)
    assert redacted.either_tokens == pytest.approx(exact_tokens, rel=0.01)
    assert redacted.prefix_tokens == pytest.approx(int(exact.prefix.sum()), rel=0.01, abs=0.01 * redacted.prompt_tokens)
    assert redacted.added_tokens > 0.5 * redacted.prompt_tokens
    written = "".join(path.read_text() for path in (tmp_path / "redacted" / "traces").glob("*.jsonl"))
    assert not any(word in written for word in ("passages", *WORDS))
