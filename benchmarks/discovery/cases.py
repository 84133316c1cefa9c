"""The recipients of every case: a donor's content in another frame."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from benchmarks.corpus import Tokens
from benchmarks.discovery.codec import Codec
from benchmarks.discovery.library import NEW_INSTRUCTION, Donor, Library

SWAP_SOURCES = frozenset({"multi_news", "natural_question", "musique_s", "qmsum_test", "qmsum_val", "made_up"})


@dataclass(frozen=True, slots=True)
class Recipient:
    tokens: Tokens
    exact_prefix_tokens: int = 0


class CaseMaker:
    """Makes recipients of one nominal size. Every draw comes from one seeded generator."""

    def __init__(self, library: Library, codec: Codec, size: int, seed: int) -> None:
        self._library = library
        self._codec = codec
        self._size = size
        self._random = np.random.default_rng([seed, size])
        self._instruction = codec.encode(NEW_INSTRUCTION)

    def make(self, case: str) -> Recipient:
        return CASES[case](self)

    def same_document(self) -> Recipient:
        return _recipient(self._instruction, self._donor().body)

    def preamble(self, length: int) -> Recipient:
        return _recipient(self._unseen(length), self._donor().body)

    def shuffled(self, passages: int) -> Recipient:
        pieces = np.array_split(self._donor().body, passages)
        order = self._random.permutation(passages)
        return _recipient(self._instruction, *(pieces[i] for i in order))

    def edited(self, share: float) -> Recipient:
        tokens = self._donor().tokens.copy()
        chosen = self._random.choice(tokens.size, max(1, round(share * tokens.size)), replace=False)
        tokens[chosen] = self._random.integers(0, self._codec.vocabulary, chosen.size)
        return _recipient(tokens)

    def shifted(self, by: int) -> Recipient:
        return _recipient(self._unseen(by), self._donor().tokens)

    def composed(self, donors: int) -> Recipient:
        share = self._size // donors
        parts = [self._instruction]
        for _ in range(donors):
            body = self._donor().body
            start = int(self._random.integers(0, max(1, body.size - share)))
            parts.append(body[start : start + share])
        return _recipient(*parts)

    def after_exact_prefix(self) -> Recipient:
        """The engine already holds the first part; new text follows it, then the rest of the same document."""
        tokens = self._donor().tokens
        cut = int(tokens.size * 0.4)
        return Recipient(np.concatenate([tokens[:cut], self._unseen(100), tokens[cut:]]), cut)

    def unrelated(self) -> Recipient:
        return _recipient(self._unseen(self._size))

    def swapped(self, change: Callable[[str, np.random.Generator], str]) -> Recipient:
        """The donor's text with facts changed, tokenized again."""
        for _ in range(200):
            donor = self._donor()
            if donor.source not in SWAP_SOURCES:
                continue
            text = self._codec.decode(donor.tokens)
            changed = change(text, self._random)
            if changed != text:
                return _recipient(self._codec.encode(changed))
        raise ValueError(f"no donor of {self._size} tokens whose text this case can change")

    def _donor(self) -> Donor:
        group = self._library.by_size[self._size]
        return group[int(self._random.integers(len(group)))]

    def _unseen(self, length: int) -> Tokens:
        start = int(self._random.integers(self._library.unseen.size))
        return np.take(self._library.unseen, np.arange(start, start + length), mode="wrap")


def swap_entities(text: str, random: np.random.Generator) -> str:
    """Up to eight capitalised words change places throughout."""
    found = sorted(set(re.findall(r"\b[A-Z][a-z]{3,}\b", text)))
    if len(found) < 2:
        return text
    chosen = random.choice(found, min(8, len(found)), replace=False).tolist()
    following = dict(zip(chosen, chosen[1:] + chosen[:1], strict=True))
    return re.sub(r"\b[A-Z][a-z]{3,}\b", lambda match: following.get(match[0], match[0]), text)


def swap_numbers(text: str, random: np.random.Generator) -> str:
    """Every number becomes another one."""
    offset = int(random.integers(1, 90))
    return re.sub(r"\d+", lambda match: str(int(match[0][:9]) + offset), text)


def negate(text: str, random: np.random.Generator) -> str:
    """About every third plain verb is negated, at least one."""
    places = [match.end() for match in re.finditer(r" (?:is|was|are|were|will|can|has)(?= )", text)]
    if not places:
        return text
    chosen = sorted(random.choice(places, max(1, len(places) // 3), replace=False).tolist(), reverse=True)
    for place in chosen:
        text = f"{text[:place]} not{text[place:]}"
    return text


def _recipient(*parts: Tokens) -> Recipient:
    return Recipient(np.ascontiguousarray(np.concatenate(parts), dtype=np.uint32))


CASES: dict[str, Callable[[CaseMaker], Recipient]] = {
    "same document, new instruction": CaseMaker.same_document,
    "behind a preamble of 100": lambda maker: maker.preamble(100),
    "behind a preamble of 900": lambda maker: maker.preamble(900),
    "behind a preamble of 3,000": lambda maker: maker.preamble(3_000),
    "6 passages shuffled": lambda maker: maker.shuffled(6),
    "16 passages shuffled": lambda maker: maker.shuffled(16),
    "1 % of tokens edited": lambda maker: maker.edited(0.01),
    "5 % of tokens edited": lambda maker: maker.edited(0.05),
    "shifted by 7": lambda maker: maker.shifted(7),
    "passages of five donors": lambda maker: maker.composed(5),
    "after an exact prefix": CaseMaker.after_exact_prefix,
    "entities swapped": lambda maker: maker.swapped(swap_entities),
    "numbers swapped": lambda maker: maker.swapped(swap_numbers),
    "negated": lambda maker: maker.swapped(negate),
    "unrelated": CaseMaker.unrelated,
}
NEGATIVE_CASES = frozenset({"unrelated"})
