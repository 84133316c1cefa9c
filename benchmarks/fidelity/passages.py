"""Passages as a retrieval system shows them: whole words, separators, and no text twice in one prompt.

The chunks of ``musique_s`` overlap: five of one question repeat up to two thirds of their text, and a model
treats repeated text differently from new text. Prompts made here repeat nothing; those that do are a separate case.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from benchmarks.vllm.texts import Question, TokenIds

GRAM_TOKENS = 12  # shared stretches of that length are the same text, shorter ones are language
BEFORE_ANSWER_CHARACTERS = 200


class SeenText:
    """What a prompt holds so far. ``is_new`` is true of tokens that share no gram with it."""

    def __init__(self) -> None:
        self._grams: set[TokenIds] = set()

    def is_new(self, tokens: TokenIds) -> bool:
        return self._grams.isdisjoint(_grams(tokens))

    def add(self, tokens: TokenIds) -> None:
        self._grams.update(_grams(tokens))


class Passages:
    """Sections of a wanted length: the one with a question's answer, and others of any question."""

    def __init__(self, questions: tuple[Question, ...], encode: Callable[[str], TokenIds]) -> None:
        self._questions = questions
        self._encode = encode
        self._end = encode("\n\n")

    def holding(self, question: Question, place: int, tokens: int) -> TokenIds:
        """From shortly before the answer on, so that a section has it whatever its length."""
        text = question.passage_texts[place].strip()
        found = max(0, text.lower().find(question.answer.lower()) - BEFORE_ANSWER_CHARACTERS)
        begin = text.find(" ", found) + 1 if found else 0
        longer = self._encode(text[begin:]) + self._encode("\n\n" + text[:begin])
        return self._cut(longer, tokens)

    def fresh(self, seen: SeenText, tokens: int, random: np.random.Generator) -> Iterator[TokenIds]:
        """Sections of text that ``seen`` has not, adding each to it; of one passage, or of two where they are short."""
        while True:
            pair = [self._any(random) for _ in range(1 + tokens // 600)]
            section = self._cut(tuple(token for passage in pair for token in passage), tokens)
            if len(section) == tokens and seen.is_new(section):
                seen.add(section)
                yield section

    def _any(self, random: np.random.Generator) -> TokenIds:
        passages = self._questions[int(random.integers(len(self._questions)))].passages
        return passages[int(random.integers(len(passages)))]

    def _cut(self, tokens: TokenIds, length: int) -> TokenIds:
        return (*tokens[: length - len(self._end)], *self._end)


def _grams(tokens: TokenIds) -> set[TokenIds]:
    return {tokens[i : i + GRAM_TOKENS] for i in range(len(tokens) - GRAM_TOKENS + 1)}
