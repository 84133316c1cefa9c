"""Agent sessions out of recorded calls: calls that grow one prompt in, messages with the recorded answers out.

Such traces (``{timestamp, session_id, input, output}``) record each prompt without the assistant's own messages, so a
step is the text a call added to the one before it, and its answer. Long sessions give several windows of ``TURNS``
calls; a window's first request holds everything before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sembench.workload.readers.fields import text_of

TURNS: Final = 8
_MICROSECONDS: Final = 1e6
_CALL: Final = "```bash\n"


@dataclass(frozen=True, slots=True)
class Step:
    """What one call added to the prompt, its recorded answer, and the seconds until the next call."""

    text: str
    answer: str
    pause_s: float


@dataclass(frozen=True, slots=True)
class AgentSession:
    """Steps up to the end of the window; its ``TURNS`` turns are requests that end with the last steps."""

    name: str
    steps: tuple[Step, ...]

    @property
    def first(self) -> int:
        """The step that the window's first request ends with."""
        return len(self.steps) - TURNS

    def within(self, budget: int, size: Callable[[str], int]) -> AgentSession | None:
        """The task, the window, and as many steps before it as fit, the latest first; None if the window does not."""
        sizes = [size(step.text) + size(step.answer) for step in self.steps]
        window = self.steps[max(1, self.first) :]
        left = budget - sizes[0] - sum(sizes[max(1, self.first) :])
        if left < 0:
            return None
        start = max(1, self.first)
        while start > 1 and sizes[start - 1] <= left:
            start -= 1
            left -= sizes[start]
        return AgentSession(self.name, (self.steps[0], *self.steps[start : max(1, self.first)], *window))


def agent_sessions(rows: Iterable[Mapping[str, Any]], dataset: str) -> Iterator[AgentSession]:
    """Windows of every session that grows one prompt over at least ``TURNS`` calls, in the order of the file.

    Memory: the calls of the file. Time: per call, one comparison with each branch of its session.
    """
    calls: dict[str, list[tuple[float, str, str]]] = {}
    for index, row in enumerate(rows):
        where = f"{dataset}[{index}]"
        name, prompt, answer = row.get("session_id"), text_of(row, "input", where), text_of(row, "output", where)
        if isinstance(name, str):
            calls.setdefault(name, []).append((float(row["timestamp"]), prompt, answer))
    for name, own in calls.items():
        steps = _steps(_longest_branch(sorted(own)))
        for window, end in enumerate(range(TURNS, len(steps) + 1, TURNS)):
            yield AgentSession(f"{name[:8]}.{window}", tuple(steps[:end]))


def _longest_branch(calls: Sequence[tuple[float, str, str]]) -> list[tuple[float, str, str]]:
    """The most calls of which each prompt continues the one before."""
    branches: list[list[tuple[float, str, str]]] = []
    for call in calls:
        grown = [
            branch for branch in branches if len(call[1]) > len(branch[-1][1]) and call[1].startswith(branch[-1][1])
        ]
        if grown:
            max(grown, key=lambda branch: len(branch[-1][1])).append(call)
        else:
            branches.append([call])
    return max(branches, key=len)


def _steps(calls: Sequence[tuple[float, str, str]]) -> list[Step]:
    steps, known = [], 0
    for number, (at, prompt, answer) in enumerate(calls):
        later = calls[number + 1][0] if number + 1 < len(calls) else at
        steps.append(Step(prompt[known:].strip("\n"), answer, (later - at) / _MICROSECONDS))
        known = len(prompt)
    return steps


def opening_and_call(answer: str) -> tuple[str, str]:
    """An answer up to its tool call, and the call. Without one: nothing, and the whole answer."""
    opening, fence, rest = answer.partition(_CALL)
    call = rest.partition("\n```")[0]
    return (opening + fence, call) if fence and call.strip() else ("", answer)
