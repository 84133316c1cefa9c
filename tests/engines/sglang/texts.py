"""Real text as token ids: documents of this repository as they once were, read with the model's own tokenizer."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

RUNNING_TEXT = Path(__file__).resolve().parents[1] / "running_text.txt"
QUESTION = "\n\nQuestion: what does the text above say, in one sentence?\nAnswer:"
_MANNERS = ("careful", "brief", "curious", "plain", "honest", "quick", "patient", "sober", "friendly", "strict")


@dataclass(frozen=True, slots=True)
class Texts:
    tokens: tuple[int, ...]
    tokenizer: Any

    def passage(self, start: int, length: int) -> list[int]:
        """``length`` tokens of running text; stretches that do not overlap have nothing to do with each other."""
        assert start + length <= len(self.tokens), f"the documents have {len(self.tokens)} tokens only"
        return list(self.tokens[start : start + length])

    def encode(self, text: str) -> list[int]:
        return list(self.tokenizer.encode(text).ids)

    def question(self, passage: Sequence[int], seed: int) -> list[int]:
        """A passage after an opening that no other prompt uses, and before a question."""
        chosen = random.Random(seed).sample(_MANNERS, 4)
        opening = f"You are assistant number {seed}. Be {', '.join(chosen)}. Read the following text and answer.\n\n"
        return [*self.encode(opening), *passage, *self.encode(QUESTION)]


def read_texts(tokenizer_file: Path) -> Texts:
    from tokenizers import Tokenizer

    text = RUNNING_TEXT.read_text(encoding="utf-8")
    tokenizer = Tokenizer.from_file(str(tokenizer_file))
    return Texts(tuple(tokenizer.encode(text).ids), tokenizer)
