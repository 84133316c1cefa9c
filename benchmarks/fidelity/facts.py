"""Plain facts in real passages, and a question about one of them: easy enough for a small model, so that flips can be
counted.

A number in, sections, the end of the prompt and the answer followed by more of the same out. 8 KB per item at 1K.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from benchmarks.vllm.texts import TokenIds

# Facts of the passages; of a passage that said something else when it was stored; of none of the passages.
FACT_SOURCES = FACTS, UPDATES, UNREAD = "facts", "updates", "unread"
_WORDS = """\
Anna Peter Laura Thomas Maria George Helen Victor Julia Martin Clara Oscar Emma Henry Nora Felix Alice Simon
Bennett Fischer Morgan Collins Rossi Novak Parker Sullivan Larsen Duarte Hoffman Kelly Moreau Shaw Tanaka Weber Quinn
Toronto Lisbon Oslo Denver Prague Madrid Vienna Boston Dublin Chicago Warsaw Seattle Athens Berlin Geneva Houston Milan
piano violin bicycle camera telescope lantern guitar kettle umbrella compass clock mirror carpet hammer ladder basket
"""
FIRST, LAST, PLACES, THINGS = (line.split() for line in _WORDS.splitlines())


@dataclass(frozen=True, slots=True)
class Form:
    """The sentence in the passages, the question up to where the answer begins, and the answer itself."""

    fact: str
    question: str
    answer: str

    def asked(self, fact: dict[str, str]) -> str:
        return f"\n\nQuestion: {self.question}".format(**fact)


# {who} {where} {what} are of one fact: no two facts of a prompt share any of them. The answer repeats the passage's
# words up to the last one, which copies: a model of 135 M parameters can do that, and not without the passage.
FORMS = (
    Form(
        "{who} lives in {where}. For ten years {who} has lived in {where}.",
        "Where does {who} live?\nAnswer: {who} lives in",
        " {where}",
    ),
    Form(
        "{who} bought a {what}. It was the first {what} that {who} bought.",
        "What did {who} buy?\nAnswer: {who} bought a",
        " {what}",
    ),
    Form(
        "The favourite city of {who} is {where}. Everybody knows that the favourite city of {who} is {where}.",
        "What is the favourite city of {who}?\nAnswer: The favourite city of {who} is",
        " {where}",
    ),
    Form(
        "{who} repaired the {what}. It took {who} a week to repair the {what}.",
        "What did {who} repair?\nAnswer: {who} repaired the",
        " {what}",
    ),
    Form(
        "{who} was born in {where}. The parents of {who} had moved to {where} a year before.",
        "Where was {who} born?\nAnswer: {who} was born in",
        " {where}",
    ),
)


@dataclass(frozen=True, slots=True)
class Facts:
    """``reference`` begins with the ``answer_tokens`` of the right answer; another question and answer follow.

    The answer is in section ``wanted``; ``before`` is that section with a different fact.
    """

    sections: tuple[TokenIds, ...]
    wanted: int
    before: TokenIds
    tail: TokenIds
    reference: TokenIds
    answer_tokens: int


def make_facts(
    encode: Callable[[str], TokenIds],
    filler: Callable[[int], TokenIds],
    room: int,
    sections: int,
    number: int,
    random: np.random.Generator,
) -> Facts:
    """``room`` tokens for the sections and the end together; ``filler`` gives prose of the requested length.

    Even numbers have facts of several forms, odd ones all of one form: there only the name leads to the answer.
    """
    drawn = [random.permutation(words)[: sections + 1].tolist() for words in (FIRST, LAST, PLACES, THINGS)]
    *facts, old = ({"who": f"{a} {b}", "where": c, "what": d} for a, b, c, d in zip(*drawn, strict=True))
    shift = number // 2 if number % 2 else int(random.integers(len(FORMS)))
    forms = [FORMS[(shift + (0 if number % 2 else i)) % len(FORMS)] for i in range(sections)]
    wanted, other = random.choice(sections, 2, replace=False).tolist()
    answer = encode(forms[wanted].answer.format(**facts[wanted]))
    tail = encode(forms[wanted].asked(facts[wanted]))
    more = encode(f".{forms[other].asked(facts[other])}{forms[other].answer.format(**facts[other])}.")
    length = (room - len(tail)) // sections

    def section(form: Form, one: dict[str, str], prose: TokenIds) -> TokenIds:
        line = encode(f"\n{form.fact}\n".format(**one))
        cut = (length - len(line)) // 2
        return (*prose[:cut], *line, *prose[cut : length - len(line)])

    texts = [filler(length) for _ in facts]
    made = tuple(section(*parts) for parts in zip(forms, facts, texts, strict=True))
    before = section(forms[wanted], {**old, "who": facts[wanted]["who"]}, texts[wanted])
    return Facts(made, wanted, before, tail, (*answer, *more), len(answer))
