"""Donors, recipient and reference text of every cell, made of real texts. Lengths are exact: prompts are token ids."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from benchmarks.discovery.codec import Codec
from benchmarks.vllm.texts import Question, Texts, TokenIds

SIZES = {"1K": 1_024, "2K": 2_048, "4K": 4_096, "8K": 8_100}  # the model has 8,192 positions: 8K leaves room to answer
REFERENCE_TOKENS = 32
PASSAGES = 5
EDITED_SHARE = 0.01

# They differ from the first token on and in length: nothing of a recipient is an exact prefix hit.
DONOR_INSTRUCTION = "You are a careful assistant. Read the text below and answer the question that follows it.\n\n"
NEW_INSTRUCTION = (
    "Act as a reviewer who trusts nothing but the material given here. Study all of it first, keep names and figures "
    "exactly as they are written, and only then do what is asked at the very end.\n\n"
)
DONOR_QUESTION = "\n\nQuestion: What is the main point of the text?\nAnswer:"
CONTINUE = "\n\nTask: Continue the document from exactly where it stops, in the same words its author would use.\nText:"


class WorkloadError(Exception):
    """The texts do not suffice for a cell."""


@dataclass(frozen=True, slots=True)
class Item:
    """One comparison. ``reference`` is real text that may follow the recipient, not written by a model."""

    size: str
    case: str
    number: int
    donors: tuple[TokenIds, ...]
    recipient: TokenIds
    reference: TokenIds

    @property
    def name(self) -> str:
        return f"{self.size} {self.case} #{self.number}"


class Workload:
    """Makes items by (size, case, number), the same ones for the same seed. ``first_token`` begins every prompt."""

    def __init__(self, texts: Texts, codec: Codec, seed: int, first_token: str | None = None) -> None:
        self._texts = texts
        self._encode: Callable[[str], TokenIds] = lambda text: tuple(codec.encode(text).tolist())
        self._seed = seed
        self._first = self._encode(first_token) if first_token is not None else ()
        self._donor_head = (*self._first, *self._encode(DONOR_INSTRUCTION))
        self._new_head = (*self._first, *self._encode(NEW_INSTRUCTION))
        self._donor_tail = self._encode(DONOR_QUESTION)

    def make(self, size: str, case: str, number: int) -> Item:
        random = np.random.default_rng([self._seed, SIZES[size], CASES.index(case), number])
        return _MAKERS[case](self, size, number, random)

    def unrelated(self, tokens: int, number: int) -> TokenIds:
        """Text of a source that no donor comes from."""
        long_enough = [document for document in self._texts.unrelated if len(document) >= tokens]
        if not long_enough:
            raise WorkloadError(f"no unrelated document of {tokens:,} tokens")
        lap, index = divmod(number, len(long_enough))
        document = long_enough[index]
        length = tokens - len(self._first)
        start = min(lap * length, len(document) - length)
        return (*self._first, *document[start : start + length])

    def same_document(self, size: str, number: int, _random: np.random.Generator) -> Item:
        body, reference = self._body(size, number)
        return self._document_item(size, SAME_DOCUMENT, number, body, body, reference)

    def edited(self, size: str, number: int, random: np.random.Generator) -> Item:
        body, reference = self._body(size, number)
        changed = edit(body, EDITED_SHARE, random)
        return self._document_item(size, EDITED, number, body, changed, reference)

    def reordered(self, size: str, number: int, random: np.random.Generator) -> Item:
        sections, tail, reference = self._sections(size, number)
        order = far_order(len(sections), random)
        donor = (*self._donor_head, *join(sections), *self._donor_tail)
        recipient = (*self._new_head, *join(tuple(sections[i] for i in order)), *tail)
        return Item(size, REORDERED, number, (donor,), recipient, reference)

    def composed(self, size: str, number: int, random: np.random.Generator) -> Item:
        """Each section comes from a donor of its own, where it followed another passage."""
        sections, tail, reference = self._sections(size, number)
        donors: list[TokenIds] = []
        for section in sections:
            other = self._texts.questions[(number + 75 + len(donors)) % len(self._texts.questions)]
            before = other.passages[int(random.integers(len(other.passages)))][: max(64, len(section) // 2)]
            donors.append((*self._donor_head, *before, *section, *self._donor_tail))
        return Item(size, COMPOSED, number, tuple(donors), (*self._new_head, *join(sections), *tail), reference)

    def _document_item(
        self, size: str, case: str, number: int, seen: TokenIds, now: TokenIds, reference: TokenIds
    ) -> Item:
        donor = (*self._donor_head, *seen, *self._donor_tail)
        recipient = (*self._new_head, *now, *self._encode(CONTINUE))
        return Item(size, case, number, (donor,), recipient, reference)

    def _body(self, size: str, number: int) -> tuple[TokenIds, TokenIds]:
        length = SIZES[size] - len(self._new_head) - len(self._encode(CONTINUE))
        long_enough = [d for d in self._texts.documents if len(d) >= length + REFERENCE_TOKENS]
        if not long_enough:
            raise WorkloadError(f"no document of {length + REFERENCE_TOKENS:,} tokens")
        order = np.random.default_rng([self._seed, SIZES[size]]).permutation(len(long_enough))
        document = long_enough[int(order[number % len(order)])]
        return document[:length], document[length : length + REFERENCE_TOKENS]

    def _sections(self, size: str, number: int) -> tuple[tuple[TokenIds, ...], TokenIds, TokenIds]:
        """Five sections of equal length, the passage with the answer in the third; question; answer with a quote."""
        questions = self._texts.questions
        order = np.random.default_rng([self._seed, 5]).permutation(len(questions))
        question = questions[int(order[number % len(order)])]
        tail = self._encode(f"\n\nQuestion: {question.text}\nAnswer in one sentence, with a quote from the text:")
        room = SIZES[size] - len(self._new_head) - len(tail)
        place, quote = quoted(question)
        ordered = [question.passages[place], *(p for i, p in enumerate(question.passages) if i != place)]
        later = (questions[int(order[(number + step) % len(order)])] for step in range(40, len(order)))
        supply = join((*ordered, *(passage for other in later for passage in other.passages)))
        cuts = [room * i // PASSAGES for i in range(PASSAGES + 1)]
        first, second, third, *rest = (supply[start:end] for start, end in pairwise(cuts))
        reference = self._encode(f' {question.answer}. The text says: "{quote}')[:REFERENCE_TOKENS]
        return (second, third, first, *rest), tail, reference


def edit(tokens: TokenIds, share: float, random: np.random.Generator) -> TokenIds:
    """Single tokens, scattered, replaced by other tokens of the same text."""
    changed = np.asarray(tokens)
    chosen = random.choice(changed.size, max(1, round(share * changed.size)), replace=False)
    drawn = changed[random.integers(0, changed.size, chosen.size)]
    changed[chosen] = np.where(drawn == changed[chosen], np.roll(drawn, 1), drawn)
    return tuple(changed.tolist())


def far_order(count: int, random: np.random.Generator) -> tuple[int, ...]:
    """A permutation in which nothing keeps its place and nothing keeps its predecessor."""
    while True:
        order = random.permutation(count).tolist()
        moved = all(place != index for place, index in enumerate(order))
        if moved and all(later != earlier + 1 for earlier, later in pairwise(order)):
            return tuple(order)


def quoted(question: Question) -> tuple[int, str]:
    """Which passage holds the answer, and that passage from shortly before it; else the first passage."""
    wanted = question.answer.lower()
    for place, text in enumerate(question.passage_texts):
        found = text.lower().find(wanted)
        if found >= 0:
            return place, text[max(0, found - 60) : found + 200]
    return 0, question.passage_texts[0][:200]


def join(parts: tuple[TokenIds, ...]) -> TokenIds:
    return tuple(token for part in parts for token in part)


SAME_DOCUMENT, EDITED, REORDERED, COMPOSED = "same document", "1 % edits", "5 reordered", "5 donors"
_MAKERS: dict[str, Callable[[Workload, str, int, np.random.Generator], Item]] = {
    SAME_DOCUMENT: Workload.same_document,
    EDITED: Workload.edited,
    REORDERED: Workload.reordered,
    COMPOSED: Workload.composed,
}
CASES = tuple(_MAKERS)
