"""The donors of a run, cut from documents, and the text that is in none of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks.corpus import Corpus, Document, Tokens
from benchmarks.discovery.codec import Codec
from benchmarks.discovery.oracle import Oracle

INSTRUCTIONS = (
    "You are a careful assistant. Read the text below and answer the question that follows it in one sentence.\n\n",
    "Summarize the following document for a busy reader. Keep names and figures exactly as they are written.\n\n",
    "Here is some material. List the main claims it makes and say for each whether the text supports it.\n\n",
    "Translate the key points of this document into plain language a school child could follow.\n\n",
    "Extract every date, amount and person mentioned below. Answer as a table, nothing else.\n\n",
)
NEW_INSTRUCTION = (
    "Please act as a reviewer now: what is missing from the text that you would need to trust its conclusion? "
    "Give three points, most important first.\n\n"
)
KEPT_BACK_SHARE = 0.08
SHORTEST_DONOR = 512


@dataclass(frozen=True, slots=True)
class Donor:
    """``body_start`` is where the document begins after the donor's own instruction."""

    donor_id: str
    source: str
    tokens: Tokens
    body_start: int

    @property
    def body(self) -> Tokens:
        return self.tokens[self.body_start :]


@dataclass(frozen=True, slots=True)
class Library:
    """``by_size`` holds the donors of each nominal size; ``unseen`` shares no window with any donor."""

    donors: tuple[Donor, ...]
    by_size: dict[int, tuple[Donor, ...]]
    unseen: Tokens
    kept_back_documents: int
    unseen_documents: int
    oracle: Oracle


def build_library(corpus: Corpus, codec: Codec, sizes: dict[int, int | None], seed: int) -> Library:
    """``sizes``: nominal donor length -> maximum number of donors (None: use all the text).

    Every document that is not held out is cut into non-overlapping slices, each after one of five instructions. For
    larger sizes the documents of one source are joined first, as a retrieval prompt joins passages.
    """
    random = np.random.default_rng(seed)
    kept_back = _kept_back(corpus, random)
    live = [document for document in corpus.documents if document.name not in kept_back]
    by_size = {size: _cut(live, codec, size, most, random) for size, most in sizes.items()}
    donors = tuple(donor for group in by_size.values() for donor in group)
    oracle = Oracle([donor.tokens for donor in donors])
    candidates = [document.tokens for document in corpus.documents if document.name in kept_back]
    unseen = [tokens for tokens in candidates if not oracle.ask(tokens, stop=tokens.size).reusable.any()]
    return Library(donors, by_size, np.concatenate(unseen), len(candidates), len(unseen), oracle)


def _kept_back(corpus: Corpus, random: np.random.Generator) -> set[str]:
    names: dict[str, list[str]] = {}
    for document in corpus.documents:
        names.setdefault(document.source, []).append(document.name)
    chosen: set[str] = set()
    for group in names.values():
        chosen.update(random.choice(group, max(1, round(KEPT_BACK_SHARE * len(group))), replace=False).tolist())
    return chosen


def _cut(
    documents: list[Document], codec: Codec, size: int, most: int | None, random: np.random.Generator
) -> tuple[Donor, ...]:
    instructions = [codec.encode(text) for text in INSTRUCTIONS]
    slices: list[tuple[str, Tokens]] = []
    for source, tokens in _texts(documents, size):
        body = size - max(instruction.size for instruction in instructions)
        slices += [(source, tokens[at : at + body]) for at in range(0, tokens.size, body)]
    usable = [(source, piece) for source, piece in slices if piece.size >= min(SHORTEST_DONOR, size // 2)]
    if most is not None and len(usable) > most:
        full = [item for item in usable if item[1].size >= size // 2]
        usable = [full[i] for i in sorted(random.permutation(len(full))[:most].tolist())]
    made = []
    for number, (source, piece) in enumerate(usable):
        instruction = instructions[number % len(instructions)]
        tokens = np.concatenate([instruction, piece])
        made.append(Donor(f"{size}/{number}", source, tokens, int(instruction.size)))
    return tuple(made)


def _texts(documents: list[Document], size: int) -> list[tuple[str, Tokens]]:
    """The documents themselves for small donors; for large ones each source's documents as one long text."""
    if size <= 2_048:
        return [(document.source, document.tokens) for document in documents]
    joined: dict[str, list[Tokens]] = {}
    for document in documents:
        joined.setdefault(document.source, []).append(document.tokens)
    return [(source, np.concatenate(parts)) for source, parts in joined.items()]
