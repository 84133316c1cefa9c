"""Real texts in, chats out: documents under new instructions, sessions whose head changes, reordered passages, others.

A chat is built when it is sent, because a session's next turn contains the answer to its last one. Prompts have some
1,000 to 2,000 tokens; every text is used by one group only, so that nothing is shared by accident.
"""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

Message = dict[str, str]

NEW_INSTRUCTION: Final = "new instruction"
CHANGED_HEAD: Final = "changed head"
REORDERED: Final = "reordered passages"
UNRELATED: Final = "unrelated"

INSTRUCTIONS: Final = (
    "Summarise the article below in three sentences for a reader who has not followed the story.",
    "You check facts for an editor. List every number, date and place that the text below states, one per line.",
    "Write a headline and a subtitle for the text below. Keep to what it says and avoid superlatives.",
    "Name the people in the text below and say in a few words what each of them did.",
    "Translate the main point of the text below into plain language for a child of ten.",
    "Which questions does the text below leave open? Ask at most four, in the order of their importance.",
)
SYSTEM: Final = (
    "Local time {hour:02d}:{minute:02d}, request {number}. You take part in a meeting as its secretary. Answer from "
    "the transcript alone, briefly, and name the speaker when you quote."
)


@dataclass(slots=True)
class Conversation:
    """One client: its chats are sent in order. ``answers`` are the server's, as they arrive."""

    kind: str
    name: str
    turns: int
    texts: tuple[str, ...]
    questions: tuple[str, ...] = ()
    answers: list[str] = field(default_factory=list)

    def messages(self, turn: int, number: int) -> list[Message]:
        if self.kind == CHANGED_HEAD:
            return self._session(turn, number)
        if self.kind == REORDERED:
            passages = list(self.texts)
            random.Random(f"{self.name} {turn}").shuffle(passages)
            text = "\n\n".join(["Answer the question from these passages.", *passages, self.questions[0]])
        else:
            start = sum(map(ord, self.name))
            text = f"{INSTRUCTIONS[(start + turn) % len(INSTRUCTIONS)]}\n\n{self.texts[0]}"
        return [{"role": "user", "content": text}]

    def _session(self, turn: int, number: int) -> list[Message]:
        """The whole history under a system prompt with the time of this request."""
        system = SYSTEM.format(hour=8 + number // 60, minute=number % 60, number=40_000 + 37 * number)
        messages = [{"role": "system", "content": system}]
        for each in range(turn + 1):
            asked = self.questions[each % len(self.questions)]
            messages.append({"role": "user", "content": f"{self.texts[0]}\n\n{asked}" if each == 0 else asked})
            if each < turn:
                messages.append({"role": "assistant", "content": self.answers[each]})
        return messages


@dataclass(frozen=True, slots=True)
class Chat:
    number: int
    turn: int
    conversation: Conversation

    @property
    def kind(self) -> str:
        """The first chat of a conversation repeats nothing, whatever follows."""
        return f"first of {self.conversation.kind}" if self.turn == 0 else self.conversation.kind

    def messages(self) -> list[Message]:
        return self.conversation.messages(self.turn, self.number)


def chats(texts: Path, count: int, seed: int = 0, words: int = 850) -> list[Chat]:
    """About ``count`` chats in a mixed order: a third each of documents and sessions, a fifth each of the rest."""
    unit = max(1, count // 38)
    wanted = (
        [(NEW_INSTRUCTION, 3)] * (4 * unit)
        + [(CHANGED_HEAD, 5)] * (2 * unit)
        + [(REORDERED, 4)] * (2 * unit)
        + [(UNRELATED, 1)] * max(1, count - 30 * unit)
    )
    articles, meetings, passages = _articles(texts, words), _meetings(texts, words), _passages(texts, words)
    conversations = []
    for number, (kind, turns) in enumerate(wanted):
        name = f"{kind} {number}"
        if kind == CHANGED_HEAD:
            text, questions = next(meetings)
            conversations.append(Conversation(kind, name, turns, (text,), questions))
        elif kind == REORDERED:
            parts, question = next(passages)
            conversations.append(Conversation(kind, name, turns, parts, (question,)))
        else:
            conversations.append(Conversation(kind, name, turns, (next(articles),)))
    order = [each for each in conversations for _ in range(each.turns)]
    random.Random(seed).shuffle(order)
    sent: dict[str, int] = {}
    made = []
    for number, conversation in enumerate(order):
        turn = sent.get(conversation.name, 0)
        sent[conversation.name] = turn + 1
        made.append(Chat(number, turn, conversation))
    return made


def spare_texts(texts: Path, count: int) -> list[str]:
    """Texts that no chat uses, for the calibration."""
    records = _lines(texts / "longbench" / "multi_news.jsonl.gz")
    return [record["context"] for record in records[-count:]]


def _articles(texts: Path, words: int) -> Iterator[str]:
    for record in _lines(texts / "longbench" / "multi_news.jsonl.gz"):
        if len(record["context"].split()) >= words:
            yield _cut(record["context"], words)


def _meetings(texts: Path, words: int) -> Iterator[tuple[str, tuple[str, ...]]]:
    for record in _lines(texts / "qmsum_test.jsonl.gz"):
        transcript = "\n".join(f"{turn['speaker']}: {turn['content']}" for turn in record["meeting_transcripts"])
        asked = [each["query"] for each in record["general_query_list"] + record["specific_query_list"]]
        if len(asked) >= 2:
            yield _cut(transcript, words), tuple(asked)


def _passages(texts: Path, words: int) -> Iterator[tuple[tuple[str, ...], str]]:
    with gzip.open(texts / "musique_s.json.gz", "rt", encoding="utf-8") as stream:
        records: list[dict[str, Any]] = json.load(stream)
    for record in records:
        parts = [_cut(part["text"], words // 6) for part in record["ctxs"][:6]]
        if len(parts) == 6:
            yield tuple(parts), record["question"]


def _cut(text: str, words: int) -> str:
    """The first words with the white space between them."""
    at = 0
    for _ in range(words):
        while at < len(text) and text[at].isspace():
            at += 1
        while at < len(text) and not text[at].isspace():
            at += 1
    return text[:at]


def _lines(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") as stream:
        return [json.loads(line) for line in stream if line.strip()]
