"""Prompts of the fidelity bench: no text twice, sections of the wanted length, the answer inside."""

from __future__ import annotations

import numpy as np
from benchmarks.fidelity.passages import GRAM_TOKENS, Passages, SeenText
from benchmarks.vllm.texts import Question, TokenIds


def encode(text: str) -> TokenIds:
    return tuple(text.encode())


def question(number: int) -> Question:
    """Chunks of one text that overlap by half, as a sliding window makes them."""
    random = np.random.default_rng(number)
    words = [f"w{n}" for n in random.integers(0, 10**6, 300)]
    texts = tuple(" ".join(words[start : start + 100]) + "\n\n" for start in range(0, 200, 50))
    return Question("who", words[120], tuple(map(encode, texts)), texts)


def grams(tokens: TokenIds) -> list[TokenIds]:
    return [tokens[i : i + GRAM_TOKENS] for i in range(len(tokens) - GRAM_TOKENS + 1)]


def test_no_section_repeats_another() -> None:
    passages = Passages(tuple(map(question, range(4))), encode)
    seen = SeenText()
    made = passages.fresh(seen, 200, np.random.default_rng(1))
    sections = [next(made) for _ in range(5)]
    assert {len(section) for section in sections} == {200}
    held = [gram for section in sections for gram in set(grams(section))]
    assert len(held) == len(set(held))


def test_overlapping_chunks_would_repeat_each_other() -> None:
    seen = SeenText()
    one, other = question(1).passages[:2]
    seen.add(one)
    assert not seen.is_new(other)
    assert seen.is_new(question(2).passages[0])


def test_the_section_of_the_question_holds_its_answer() -> None:
    asked = question(3)
    place = next(i for i, text in enumerate(asked.passage_texts) if asked.answer in text)
    section = Passages((asked,), encode).holding(asked, place, 300)
    assert asked.answer.encode() in bytes(section)
    assert bytes(section).endswith(b"\n\n")
    assert len(section) == 300
