"""The fixed set: donors, recipient, text to score and, where there is one, the right answer. Same seed, same items.

Sources: L-Eval and multi_news documents, musique_s passages, agent traces, key-value needles, plain facts.
16 KB per item at 1K.
"""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import pairwise
from pathlib import Path

import numpy as np

from benchmarks.corpus import load_corpus
from benchmarks.discovery.codec import Codec
from benchmarks.fidelity.facts import FACT_SOURCES, UNREAD, UPDATES, make_facts
from benchmarks.fidelity.passages import Passages, SeenText
from benchmarks.vllm.texts import Texts, TokenIds
from benchmarks.vllm.workload import (
    COMPOSED,
    CONTINUE,
    DONOR_INSTRUCTION,
    DONOR_QUESTION,
    EDITED,
    EDITED_SHARE,
    NEW_INSTRUCTION,
    REFERENCE_TOKENS,
    SAME_DOCUMENT,
    SIZES,
    Item,
    Workload,
    edit,
    far_order,
    join,
    quoted,
)

NEW, EDITS, REORDER, COMPOSITION, MIXTURE = "new instruction", "edits", "reorder", "composition", "mixture"
# Hard ends of composition: donors in which the passage was near the front; chunks that overlap, so that the recipient
# repeats text and no donor does.
SHALLOW, OVERLAP = "shallow donors", "overlapping chunks"
# The recipients of composition again, each passage computed with nothing but an instruction before it.
ISOLATED = "isolated passages"
CASES = (NEW, EDITS, REORDER, COMPOSITION, MIXTURE, SHALLOW, OVERLAP, ISOLATED)
NEEDLES = "kv-retrieval-75_keys.jsonl.gz"
NEEDLE_RIGHT_TOKENS = 8  # of some 24: no two values of a prompt share them
SECTIONS = 5
# Items of each case by source: 100 in all without the isolated passages, which are measured where they are asked for.
# Needles and facts are made in any number.
COUNTS = {
    NEW: {"documents": 8, "agents": 4},
    EDITS: {"documents": 8, "agents": 4},
    REORDER: {"questions": 12, "needles": 8},
    COMPOSITION: {"questions": 12, "needles": 8},
    MIXTURE: {"questions": 12},
    SHALLOW: {"questions": 12},
    OVERLAP: {"questions": 12},
    ISOLATED: {"questions": 12, "needles": 8},
}
STANDARD_CASES = tuple(case for case in CASES if case != ISOLATED)


@dataclass(frozen=True, slots=True)
class FidelityItem:
    """``answer_tokens`` of ``reference`` are the right answer; 0 where the right answer is not known."""

    case: str
    source: str
    number: int
    donors: tuple[TokenIds, ...]
    recipient: TokenIds
    reference: TokenIds
    answer_tokens: int = 0

    @property
    def name(self) -> str:
        return f"{self.case}/{self.source}/{self.number}"

    def digest(self) -> str:
        """A digest of what a cold reading depends on, which does not include donors."""
        ids = np.asarray([len(self.recipient), *self.recipient, *self.reference], np.int64)
        return hashlib.sha256(ids.tobytes()).hexdigest()[:24]


class FidelitySet:
    def __init__(
        self, folder: Path, texts: Texts, codec: Codec, size: str, seed: int = 1, first_token: str | None = None
    ) -> None:
        """``first_token`` begins every prompt."""
        self._workload = Workload(texts, codec, seed, first_token)
        self._texts = texts
        self.encode: Callable[[str], TokenIds] = lambda text: tuple(codec.encode(text).tolist())
        self._passages = Passages(texts.questions, self.encode)
        self._size, self._seed = size, seed
        first = self.encode(first_token) if first_token is not None else ()
        self.head, self._new_head = ((*first, *self.encode(text)) for text in (DONOR_INSTRUCTION, NEW_INSTRUCTION))
        self._tail = self.encode(DONOR_QUESTION)
        self._folder = folder
        with gzip.open(folder / NEEDLES, "rt", encoding="utf-8") as stream:
            self._needles = [json.loads(line) for _, line in zip(range(64), stream, strict=False)]

    @cached_property
    def _agents(self) -> list[TokenIds]:
        """Agent traces that are long enough. Reading them takes minutes, so it waits for the first item of one."""
        return [
            tuple(document.tokens.tolist())
            for document in load_corpus(self._folder).documents
            if document.source in ("agent_miniswe", "agent_magagent")
            and document.tokens.size >= SIZES[self._size] + REFERENCE_TOKENS
        ]

    def _prose(self, tokens: int, random: np.random.Generator) -> TokenIds:
        """The end of some passages."""
        found: list[int] = []
        while len(found) < tokens:
            passages = self._texts.questions[int(random.integers(len(self._texts.questions)))].passages
            found += passages[int(random.integers(len(passages)))]
        return tuple(found[len(found) - tokens :])

    def items(self, counts: dict[str, dict[str, int]], skip: int = 0) -> Iterator[FidelityItem]:
        for case, sources in counts.items():
            for source, count in sources.items():
                for number in range(skip, count):
                    yield self.make(case, source, number)

    def make(self, case: str, source: str, number: int) -> FidelityItem:
        like = COMPOSITION if case == ISOLATED else case
        random = np.random.default_rng([self._seed, CASES.index(like), number])
        if source == "agents":
            return self._agent(case, number, random)
        if source == "needles":
            return self._needle(case, number, random)
        if source in FACT_SOURCES:
            return self._fact(case, source, number, random)
        if case == MIXTURE:
            return self._mixture(number, random)
        if case in (REORDER, COMPOSITION, SHALLOW, ISOLATED):
            return self._retrieved(case, number)
        names = {NEW: SAME_DOCUMENT, EDITS: EDITED, OVERLAP: COMPOSED}
        made = self._workload.make(self._size, names[case], number)
        return self._of_workload(case, source, made)

    def _of_workload(self, case: str, source: str, made: Item) -> FidelityItem:
        answer = self._answer_tokens(made.reference) if source == "questions" else 0
        return FidelityItem(case, source, made.number, made.donors, made.recipient, made.reference, answer)

    def _retrieved(self, case: str, number: int) -> FidelityItem:
        """Five passages, no text twice, and a question; they come from one earlier prompt or from five.

        A donor of a composition is an earlier prompt in which the passage had any rank among others.
        """
        random = np.random.default_rng([self._seed, 13, number])  # the same recipient in every case
        questions = self._texts.questions
        order = np.random.default_rng([self._seed, 5]).permutation(len(questions))
        question = questions[int(order[number % len(order)])]
        tail = self.encode(f"\n\nQuestion: {question.text}\nAnswer in one sentence, with a quote from the text:")
        length = (SIZES[self._size] - len(self._new_head) - len(tail)) // SECTIONS
        place, quote = quoted(question)
        wanted = self._passages.holding(question, place, length)
        seen = SeenText()
        seen.add(wanted)
        others = self._passages.fresh(seen, length, random)
        sections = [next(others) for _ in range(SECTIONS - 1)]
        sections.insert(int(random.integers(SECTIONS)), wanted)
        if case == REORDER:
            before = [join(tuple(sections[i] for i in far_order(SECTIONS, random)))]
        elif case == COMPOSITION:
            ranks = random.integers(0, SECTIONS, SECTIONS).tolist()
            before = [
                join((*(next(others) for _ in range(rank)), section))
                for rank, section in zip(ranks, sections, strict=True)
            ]
        elif case == ISOLATED:
            before = sections
        else:
            before = [(*next(others)[: length // 2], *section) for section in sections]
        reference = self.encode(f' {question.answer}. The text says: "{quote}')[:REFERENCE_TOKENS]
        return FidelityItem(
            case,
            "questions",
            number,
            tuple((*self.head, *text, *self._tail) for text in before),
            (*self._new_head, *join(tuple(sections)), *tail),
            reference,
            self._answer_tokens(reference),
        )

    def _answer_tokens(self, reference: TokenIds) -> int:
        """The reference of a question begins with its answer, up to the full stop after it."""
        stop = self.encode(" a. The")[1]
        return reference.index(stop) if stop in reference else 0

    def _agent(self, case: str, number: int, random: np.random.Generator) -> FidelityItem:
        tail = self.encode(CONTINUE)
        length = SIZES[self._size] - len(self._new_head) - len(tail)
        order = np.random.default_rng([self._seed, 7]).permutation(len(self._agents))
        document = self._agents[int(order[number % len(order)])]
        body, reference = document[:length], document[length : length + REFERENCE_TOKENS]
        now = edit(body, EDITED_SHARE, random) if case == EDITS else body
        donor = (*self.head, *body, *self._tail)
        return FidelityItem(case, "agents", number, (donor,), (*self._new_head, *now, *tail), reference)

    def _needle(self, case: str, number: int, random: np.random.Generator) -> FidelityItem:
        """Records of one file in five sections; the question is about the value of one key."""
        record = self._needles[number % 32]  # further numbers ask for other keys of the same records
        lines = [self.encode(f'"{key}": "{value}",\n') for key, value in record["ordered_kv_records"]]
        room = SIZES[self._size] - len(self._new_head) - 64
        count = min(len(lines), room // max(map(len, lines)))
        place = int(random.integers(count))
        key, value = record["ordered_kv_records"][place]
        cuts = [count * i // SECTIONS for i in range(SECTIONS + 1)]
        sections = tuple(join(tuple(lines[a:b])) for a, b in pairwise(cuts))
        tail = self.encode(f'\nThe value of the key "{key}" is:\n"{key}": "')
        reference = (*self.encode(value), *self.encode('",\n'))[:REFERENCE_TOKENS]
        if case == REORDER:
            shuffled = join(tuple(sections[i] for i in far_order(SECTIONS, random)))
            donors: tuple[TokenIds, ...] = ((*self.head, *shuffled, *self._tail),)
        else:
            others = [
                self.encode(f'"{key}": "{value}",\n')
                for key, value in self._needles[32 + number % 32]["ordered_kv_records"]
            ]
            ranks = [0] * SECTIONS if case == ISOLATED else random.integers(0, SECTIONS, SECTIONS).tolist()
            donors = tuple(
                (*self.head, *join(tuple(others[: rank * count // SECTIONS])), *section, *self._tail)
                for rank, section in zip(ranks, sections, strict=True)
            )
        recipient = (*self._new_head, *join(sections), *tail)
        return FidelityItem(case, "needles", number, donors, recipient, reference, NEEDLE_RIGHT_TOKENS)

    def _fact(self, case: str, source: str, number: int, random: np.random.Generator) -> FidelityItem:
        """The same plain facts as one document (as it was, or edited), in another order, or out of other donors."""
        room = SIZES[self._size] - len(self._new_head)
        prose = partial(self._prose, random=random)
        asked = make_facts(self.encode, prose, room, SECTIONS, number, random)
        facts = make_facts(self.encode, prose, room, SECTIONS, number, random) if source == UNREAD else asked
        sections = facts.sections
        before = tuple(facts.before if i == facts.wanted else part for i, part in enumerate(sections))
        now = join(sections)
        if case == REORDER:
            donors: tuple[TokenIds, ...] = (join(tuple(sections[i] for i in far_order(SECTIONS, random))),)
        elif case == ISOLATED:
            donors = sections
        elif case == COMPOSITION:
            donors = tuple((*prose(max(64, len(part) // 2)), *part) for part in sections)
        elif case == MIXTURE:
            # The fact is in the edited document or in the passage after it, never in the new one.
            ordered = tuple(sections[(facts.wanted + i - number % 3) % SECTIONS] for i in range(SECTIONS))
            document, (first, new, second) = join(ordered[:2]), ordered[2:]
            donors = (document, *((*prose(len(part)), *part) for part in (first, second)))
            now = (*edit(document, EDITED_SHARE, random), *first, *new, *second)
        else:
            donors = (join(before) if source == UPDATES else now,)
            now = edit(now, EDITED_SHARE, random) if case == EDITS and source != UPDATES else now
        return FidelityItem(
            case,
            source,
            number,
            tuple((*self.head, *donor, *self._tail) for donor in donors),
            (*self._new_head, *now, *asked.tail),
            asked.reference[:REFERENCE_TOKENS],
            asked.answer_tokens,
        )

    def _mixture(self, number: int, random: np.random.Generator) -> FidelityItem:
        """An edited document, two passages of two other donors with a new passage between them, then a question."""
        questions = self._texts.questions
        order = np.random.default_rng([self._seed, 11]).permutation(len(questions))
        question = questions[int(order[number % len(order)])]
        part = SIZES[self._size] // SECTIONS
        novel = questions[int(order[(number + 50) % len(order)])].passages[0][:part]
        before = questions[int(order[(number + 90) % len(order)])].passages
        place, quote = quoted(question)
        wanted = question.passages[place][:part]
        other = question.passages[(place + 1) % len(question.passages)][:part]
        tail = self.encode(f"\n\nQuestion: {question.text}\nAnswer in one sentence, with a quote from the text:")
        room = SIZES[self._size] - len(self._new_head) - len(tail) - len(wanted) - len(other) - len(novel)
        document = next(d for d in self._texts.documents[number * 3 :] if len(d) > room)[:room]
        donors = (
            (*self.head, *document, *self._tail),
            (*self.head, *before[0][:part], *wanted, *self._tail),
            (*self.head, *before[1][:part], *other, *self._tail),
        )
        body = (*edit(document, EDITED_SHARE, random), *wanted, *novel, *other)
        reference = self.encode(f' {question.answer}. The text says: "{quote}')[:REFERENCE_TOKENS]
        recipient = (*self._new_head, *body, *tail)
        return FidelityItem(MIXTURE, "questions", number, donors, recipient, reference, self._answer_tokens(reference))
