"""The two loads of the end-to-end run, as manifests: sessions that reuse their texts, and prompts that share nothing.

Rich: questions over the same retrieved passages (musique_s), some after another opening so that no prefix is shared,
and turns of real agents (miniswe). Free: one article each (multi_news).
"""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from benchmarks.corpus import TOKENIZER
from sembench.manifest import WorkloadItem, item_id_for

OPENING = "Read the passages and answer the question that follows them.\n\n"
# A turn with one of these shares its passages with the turns before it, and no prefix.
OTHER_OPENINGS = (
    "The time is 14:32. You answer in one short sentence and name the passage you took the answer from.\n\n",
    "Note for the assistant: the reader is new to the subject, so explain in simple words what is asked.\n\n",
    "Ticket 4711, second request of the day. Keep to the facts below and do not add anything of your own.\n\n",
)
OTHER_EVERY = 3
FOLLOW_UPS = (
    "What do the passages say about {title}?",
    "Which dates are given for {title}?",
    "Who is mentioned together with {title}?",
)
# Beginnings that a small model continues: an empty answer has no first token to time.
ANSWER = "Answer: According to the passages, the"
NEXT_STEP = "THOUGHT: Next I will"
SUMMARY = "Summary: The story is about"
AGENTS = "agent_miniswe.jsonl.gz"
QUESTIONS = "musique_s.json.gz"
ARTICLES = "longbench/multi_news.jsonl.gz"


class Cutter:
    """Texts cut to a number of the model's tokens."""

    def __init__(self) -> None:
        self._tokenizer = Tokenizer.from_file(str(TOKENIZER))

    def cut(self, text: str, tokens: int) -> str:
        encoded = self._tokenizer.encode(text, add_special_tokens=False)
        return text if len(encoded.ids) <= tokens else text[: encoded.offsets[tokens - 1][1]]

    def cut_middle(self, text: str, tokens: int) -> str:
        """The last quarter is the end of the text: there the turns of an agent differ."""
        encoded = self._tokenizer.encode(text, add_special_tokens=False)
        if len(encoded.ids) <= tokens:
            return text
        tail = tokens // 4
        return text[: encoded.offsets[tokens - tail - 1][1]] + "\n...\n" + text[encoded.offsets[-tail][0] :]


def rich_items(texts: Path, sessions: int, turns: int, tokens: int, seed: int, *, lanes: int = 1) -> list[WorkloadItem]:
    """A quarter of the sessions are agents'. Each lane is one client that serves its sessions turn by turn.

    Between two turns of a session lie turns of all others, in an order drawn by ``seed``.
    """
    cutter, agents = Cutter(), sessions // 4
    asked = [_question_session(record, turns, tokens, cutter) for record in _records(texts)[: sessions - agents]]
    streams = [*asked, *list(_agent_sessions(texts, turns, tokens, cutter))[:agents]]
    draws = random.Random(seed)
    draws.shuffle(streams)
    items = []
    for lane in range(lanes):
        mine = streams[lane::lanes]
        for turn in range(turns):
            draws.shuffle(mine)
            items += [_in_lane(stream[turn], lane) for stream in mine]
    return items


def _in_lane(item: WorkloadItem, lane: int) -> WorkloadItem:
    return replace(item, metadata={"stream": True, "stream_id": f"lane-{lane}"})


def free_items(texts: Path, requests: int, tokens: int, seed: int) -> list[WorkloadItem]:
    cutter = Cutter()
    with gzip.open(texts / ARTICLES, "rt", encoding="utf-8") as stream:
        records = [json.loads(line) for line in stream]
    items = [_free_item(record["context"], number, tokens, cutter) for number, record in enumerate(records[:requests])]
    random.Random(seed).shuffle(items)
    return items


def _records(texts: Path) -> list[dict[str, Any]]:
    with gzip.open(texts / QUESTIONS, "rt", encoding="utf-8") as stream:
        records: list[dict[str, Any]] = json.load(stream)
    return records


def _passages(record: dict[str, Any]) -> str:
    return "\n\n".join(f"{passage['title']}\n{passage['text']}" for passage in record["ctxs"])


def _question_session(record: dict[str, Any], turns: int, tokens: int, cutter: Cutter) -> list[WorkloadItem]:
    name = "musique-" + item_id_for("musique_s", record["question"], "session")
    passages = cutter.cut(_passages(record), tokens)
    title = record["ctxs"][0]["title"]
    questions = [record["question"], *(text.format(title=title) for text in FOLLOW_UPS)]
    items = []
    for turn in range(turns):
        is_other = turn % OTHER_EVERY == OTHER_EVERY - 1
        opening = OTHER_OPENINGS[turn // OTHER_EVERY % len(OTHER_OPENINGS)] if is_other else OPENING
        prompt = f"{opening}{passages}\n\nQuestion {turn + 1}: {questions[turn % len(questions)]}\n{ANSWER}"
        items.append(_turn(name, turn, prompt, "other_opening" if is_other else "same_opening"))
    return items


def _agent_sessions(texts: Path, turns: int, tokens: int, cutter: Cutter) -> Iterator[list[WorkloadItem]]:
    """The first turns of each session that are long enough to be worth caching."""
    sessions: dict[str, list[str]] = {}
    with gzip.open(texts / AGENTS, "rt", encoding="utf-8") as stream:
        for line in stream:
            record = json.loads(line)
            sessions.setdefault(str(record.get("session_id")), []).append(str(record["input"]))
    for name, prompts in sessions.items():
        long = [prompt for prompt in prompts if len(prompt) > 2_000][:turns]
        if len(long) == turns:
            texts_of = [f"{cutter.cut_middle(text, tokens)}\n{NEXT_STEP}" for text in long]
            yield [_turn(f"agent-{name}", turn, text, "agent") for turn, text in enumerate(texts_of)]


def _turn(stream: str, turn: int, prompt: str, transform: str) -> WorkloadItem:
    return WorkloadItem(
        item_id=item_id_for(stream, str(turn), transform),
        dataset=stream.partition("-")[0],
        source_id=f"{stream}/{turn}",
        transform=transform,
        recipient_prompt=prompt,
    )


def _free_item(text: str, number: int, tokens: int, cutter: Cutter) -> WorkloadItem:
    """The number comes first, so that not even the opening is shared."""
    prompt = f"{number}. {cutter.cut(text, tokens)}\n\n{SUMMARY}"
    return WorkloadItem(
        item_id=item_id_for("free", str(number), "alone"),
        dataset="multi_news",
        source_id=str(number),
        transform="alone",
        recipient_prompt=prompt,
    )
