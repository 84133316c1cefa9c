"""Python files with made-up functions, and tasks whose answer needs a function of another file.

The earlier revision has the first two parameters of the function in the other order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sembench.workload.seeded import Draws
from sembench.workload.tasks.base import ADJECTIVES, ANIMALS, SECTIONS, Change, Draft

_PARAMETERS: Final = ("ledger", "rate", "region", "limit", "batch", "owner", "weight", "offset", "stage", "volume")
_VERBS: Final = (
    "Settle",
    "Audit",
    "Merge",
    "Price",
    "Rank",
    "Pack",
    "Trim",
    "Balance",
    "Sort",
    "Check",
    "Close",
    "Book",
)
_OBJECTS: Final = (
    "invoice",
    "shipment",
    "refund",
    "voucher",
    "order",
    "tariff",
    "budget",
    "contract",
    "deposit",
    "quote",
)
_WORDS_OF_A_FUNCTION: Final = 28  # at least: with three parameters
_WORDS_OF_A_USAGE: Final = 5  # likewise


@dataclass(frozen=True, slots=True)
class _Function:
    name: str
    parameters: tuple[str, ...]
    purpose: str
    body: tuple[str, ...]

    @property
    def signature(self) -> str:
        return f"def {self.name}({', '.join(self.parameters)}):"

    def call(self, name: str | None = None, *, swapped: bool = False) -> str:
        return f"{name or self.name}({', '.join(self.ordered(swapped))})"

    def ordered(self, swapped: bool) -> tuple[str, ...]:
        first, second, *rest = self.parameters
        return (second, first, *rest) if swapped else self.parameters

    @property
    def text(self) -> str:
        return "\n".join([self.signature, f'    """{self.purpose}"""', *(f"    {line}" for line in self.body)])

    @property
    def usage(self) -> str:
        return f"result = {self.call()}"

    @property
    def change(self) -> Change:
        return self.change_of(self.signature)

    def change_of(self, line: str) -> Change:
        return Change(line, ", ".join(self.parameters), ", ".join(self.ordered(swapped=True)))


def usage(draws: Draws, words: int) -> Draft:
    """The line that calls a named function, as it is in the function's test: its parameters are in the source twice."""
    functions, passages = _files(draws, words, tested=True)
    asked = functions[0]
    before = f"{asked.name}("
    return Draft(
        passages=passages,
        question=f"Write the line that calls the function {asked.name} as its test does.",
        other_question=f"What does the function {functions[1].name} do?",
        opening=f"\n```python\nresult = {before}",
        before=before,
        answers=(asked.call(),),
        score="call",
        changes=(asked.change, asked.change_of(asked.usage)),
        earlier_answer=asked.call(swapped=True),
    )


def call(draws: Draws, words: int) -> Draft:
    """The call of a named function with its parameters in their order; the prompt has them as variables in another."""
    functions, passages = _files(draws, words)
    asked = functions[0]
    before = f"{asked.name}("
    return Draft(
        passages=passages,
        question=(
            f"Call the function {asked.name} of the source. Pass a variable for every parameter, in the order of the "
            "definition; each variable has the name of its parameter. Answer with the line of code."
        ),
        other_question=f"What does the function {functions[1].name} do?",
        opening=f"\n```python\ndef run({_given(asked)}):\n    return {before}",
        before=before,
        answers=_calls(asked),
        score="call",
        changes=(asked.change,),
        earlier_answer=asked.call(swapped=True),
    )


def complete(draws: Draws, words: int) -> Draft:
    """A function body that has to call the function with a described purpose; its name is not given."""
    functions, passages = _files(draws, words)
    asked = functions[0]
    task = asked.purpose.rstrip(".").lower()
    return Draft(
        passages=passages,
        question=(
            f"Complete the function run. One function of the source has the purpose to {task}. Call it with its "
            "parameters in the order of its definition, and return what it returns."
        ),
        other_question=f"What does the function {functions[1].name} do?",
        opening=f"\n```python\ndef run({_given(asked)}):\n    return",
        before="return",
        answers=_calls(asked),
        score="call",
        changes=(asked.change,),
        earlier_answer=asked.call(swapped=True),
    )


def rename(draws: Draws, words: int) -> Draft:
    """The first line of a definition under a new name."""
    functions, passages = _files(draws, words)
    asked = functions[0]
    new = f"{asked.name}_v2"  # the name of another function would ask for that one's parameters
    before = f"def {new}("
    return Draft(
        passages=passages,
        question=f"Rename the function {asked.name} to {new}. Answer with the first line of its new definition.",
        other_question=f"What does the function {functions[1].name} do?",
        opening=f"\n```python\n{before}",
        before=before,
        answers=(f"def {asked.call(new)}:",),
        score="definition",
        changes=(asked.change,),
        earlier_answer=f"def {asked.call(new, swapped=True)}:",
    )


def _given(asked: _Function) -> str:
    return ", ".join(sorted(asked.parameters))


def _calls(asked: _Function) -> tuple[str, ...]:
    """By position, or with every parameter by its name."""
    return asked.call(), f"{asked.name}({', '.join(f'{name}={name}' for name in asked.parameters)})"


def _files(draws: Draws, words: int, *, tested: bool = False) -> tuple[list[_Function], list[str]]:
    """At least two functions per file, and the files. Names, purposes and parameters say nothing about each other.

    With ``tested``, each passage ends with a file of tests that calls each of its functions once.
    """
    words_of_one = _WORDS_OF_A_FUNCTION + (_WORDS_OF_A_USAGE if tested else 0)
    count = max(2 * SECTIONS, -(-words // words_of_one))
    names = draws.shuffled([f"{adjective}_{animal}" for adjective in ADJECTIVES for animal in ANIMALS])[:count]
    purposes = draws.shuffled([f"{verb} the {thing} of a day." for verb in _VERBS for thing in _OBJECTS])[:count]
    functions = [_function(draws, name, purpose) for name, purpose in zip(names, purposes, strict=True)]
    order = draws.shuffled(range(len(functions)))
    passages = []
    for number in range(SECTIONS):
        own = [functions[place] for place in order[number::SECTIONS]]
        parts = [f"# file: shop/part_{number + 1}.py", *(function.text for function in own)]
        if tested:
            parts += [f"# file: tests/test_part_{number + 1}.py", "\n".join(function.usage for function in own)]
        passages.append("\n\n".join(parts))
    return functions, passages


def _function(draws: Draws, name: str, purpose: str) -> _Function:
    parameters = tuple(draws.shuffled(_PARAMETERS)[: 3 + draws.below(2)])
    body = [f"total = {parameters[-1]} * {2 + draws.below(90)}"]
    body += [f"total += {parameter} - {2 + draws.below(900)}" for parameter in draws.shuffled(parameters[:-1])]
    return _Function(name, parameters, purpose, (*body, f"return total // {2 + draws.below(90)}"))
