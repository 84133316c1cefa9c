"""Real text as token ids: documents of this repository as they once were, cut into passages that never overlap."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.engines.vllm.connector.client import Client

# A text of the tests' own, so that a new page of the documentation does not change them.
RUNNING_TEXT = Path(__file__).resolve().parents[2] / "running_text.txt"
BLOCK_TOKENS = 128  # what the CPU backend uses unless told otherwise
QUESTION = "\n\nQuestion: what does the text above say, in one sentence?\nAnswer:"


@dataclass(frozen=True, slots=True)
class Texts:
    """``tokens`` of all documents in a row, a client to tokenize pieces with, and what every prompt begins with."""

    tokens: tuple[int, ...]
    client: Client
    first: tuple[int, ...] = ()

    def passage(self, start: int, length: int) -> list[int]:
        """``length`` tokens of running text; stretches that do not overlap have nothing to do with each other."""
        assert start + length <= len(self.tokens), f"the documents have {len(self.tokens)} tokens only"
        return list(self.tokens[start : start + length])

    def encode(self, text: str) -> list[int]:
        return self.client.tokenize(text)

    def question(self, prompt: Sequence[int], opening: str = "", asked: str = QUESTION) -> list[int]:
        """``prompt`` behind an opening of its own and in front of a question."""
        return [*(self.encode(opening) if opening else ()), *prompt, *self.encode(asked)]


def read_texts(client: Client) -> Texts:
    first = tuple(client.tokenize(client.model.first_token)) if client.model.first_token else ()
    return Texts(tuple(client.tokenize(RUNNING_TEXT.read_text(encoding="utf-8"))), client, first)


def opening(seed: int) -> str:
    """A preamble that no other prompt uses, so that nothing after it is an exact prefix of anything."""
    chosen = random.Random(seed).sample(
        ["careful", "brief", "curious", "plain", "honest", "quick", "patient", "sober", "friendly", "strict"], 4
    )
    return f"You are assistant number {seed}. Be {', '.join(chosen)}. Read the following text and answer.\n\n"


def shared_prefix(one: Sequence[int], other: Sequence[int]) -> int:
    """Tokens of whole blocks both prompts begin with: all that an exact cache may share between them."""
    equal = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    return equal // BLOCK_TOKENS * BLOCK_TOKENS
