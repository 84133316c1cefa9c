"""Same document, new instruction: a donor prompt, a recipient prompt, and the document's real continuation."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

TokenIds = tuple[int, ...]
SIZES = {"1K": 1024, "2K": 2048, "3K": 3072, "4K": 4096}
FORCED_TOKENS = 64
INSTRUCTIONS = (
    "Summarise the document below for a colleague who has not read it.",
    "Read this text closely. Which claim in it is the weakest, and why?",
    "You are an editor. List the people and places that the following text names.",
    "Answer in one sentence: what is the document about?",
    "The following was found in an archive. Say when it was probably written.",
)
QUESTION = "\n\nAnswer:"


@dataclass(frozen=True, slots=True)
class Item:
    """``forced`` follows ``recipient_open`` in the document; scoring it compares cold and blended context."""

    size: str
    number: int
    donor: TokenIds
    recipient: TokenIds
    recipient_open: TokenIds
    forced: TokenIds


class Workload:
    """Documents in a fixed, shuffled order; no item shares a document with another."""

    def __init__(self, documents: tuple[TokenIds, ...], encode: Callable[[str], list[int]], seed: int) -> None:
        self._encode = encode
        longest = max(SIZES.values()) + FORCED_TOKENS
        self._documents = [document for document in documents if len(document) >= longest]
        random.Random(seed).shuffle(self._documents)

    def make(self, size: str, number: int) -> Item:
        place = number * len(SIZES) + list(SIZES).index(size)
        document = self._documents[place % len(self._documents)]
        chosen = random.Random(place).sample(INSTRUCTIONS, 2)
        donor_open, recipient_open = (tuple(self._encode(f"{text}\n\n")) for text in chosen)
        question = tuple(self._encode(QUESTION))
        length = SIZES[size] - len(recipient_open) - len(question)
        body, forced = document[:length], document[length : length + FORCED_TOKENS]
        return Item(
            size,
            number,
            (*donor_open, *body),
            (*recipient_open, *body, *question),
            (*recipient_open, *body),
            forced,
        )
