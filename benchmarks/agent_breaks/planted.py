"""Recorded agent sessions with a planted prefix break each, and negative controls: one record per turn.

The sessions are real; their head (system prompt, environment, memory, tools) is ours, because the traces have none.
From a drawn turn on, a session has one of the changes that people report; nothing else differs from the recording.
Every session has a tenant of its own, except that ``other_tenant`` repeats a session word for word as another tenant.
In the sessions of ``FACTS`` the change alters what the history says, and the turn asks for it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from benchmarks.agent_breaks import changes
from benchmarks.agent_breaks.changes import Below, Body
from benchmarks.agent_breaks.recorded import TURNS, AgentSession, Step, agent_sessions, opening_and_call
from sembase.errors import ConfigurationError
from sembench.workload.record import SourceRecord
from sembench.workload.seeded import Draws
from sembench.workload.sources.agent_trace import agent_files
from sembench.workload.sources.base import SourceRequest

NO_BREAK: Final = "none"
OTHER_TENANT: Final = "other_tenant"
EVERY_TURN: Final = "id_every_turn"
FACTS: Final = ("fact_in_head", "fact_in_history")
KINDS: Final = (
    "date",
    "id",
    EVERY_TURN,
    "tools_added",
    "tools_removed",
    "tools_reordered",
    "memory_edited",
    "file_reread",
    "history_compacted",
    "system_switched",
    *FACTS,
    NO_BREAK,
    OTHER_TENANT,
)
_FIRST_BREAK, _LAST_BREAK = 2, TURNS - 3  # two turns before it at least, and two after it
_ROLES: Final = (
    "You are a coding agent. You work in a checked-out repository and change it until the task is done. Read before "
    "you write, keep changes small, and never touch the tests. Run one command at a time and wait for its output.",
    "You are a coding agent in planning mode. You explore a checked-out repository and write a plan that another agent "
    "will carry out. Explain which files have to change and why. Run one command at a time and wait for its output.",
)
_MEMORY: Final = (
    "- The test suite takes twenty minutes; run single tests.",
    "- Public functions have docstrings; private ones need none.",
    "- The maintainers prefer one commit per change.",
    "- Never upgrade a dependency in the same change.",
    "- Deprecated arguments keep working for two releases.",
)
_NEW_MEMORY: Final = "- Ask before a file is moved; the release scripts know its path."
_PROBE: Final = "Before the next command, state the staging port of this project."
_FACT: Final = "The staging port of this project is "
_TOOLS: Final = tuple(
    {
        "type": "function",
        "function": {
            "name": name,
            "description": text,
            "parameters": {"type": "object", "properties": {field: {"type": "string"} for field in fields}},
        },
    }
    for name, text, fields in (
        ("bash", "Run a command in a shell and return its output and its exit code", ("command", "timeout")),
        ("read_file", "Return a range of lines of a text file, with their numbers", ("path", "first", "last")),
        ("edit_file", "Replace a string that occurs once in a file by another one", ("path", "old", "new")),
        ("grep", "Find the lines of all files below a folder that match a pattern", ("pattern", "folder")),
        ("list_files", "List the files below a folder that match a glob, newest first", ("folder", "glob")),
        ("run_tests", "Run the tests that a selector names and return those that failed", ("selector",)),
        ("web_fetch", "Fetch a page and return its text, shortened to what the question needs", ("url", "question")),
    )
)


@dataclass(frozen=True, slots=True)
class _Head:
    """What every request of a session begins with."""

    ident: str
    moment: str
    role: str
    memory: tuple[str, ...]
    tools: tuple[Body, ...]

    def body(self, messages: Sequence[Body]) -> Body:
        memory = "\n".join(self.memory)
        system = f"{self.ident}\n\n{self.role}\n\n# Environment\n{self.moment}\n\n# Memory\n{memory}"
        return {"messages": [{"role": "system", "content": system}, *messages], "tools": list(self.tools)}


@dataclass(frozen=True, slots=True)
class _Turn:
    body: Body
    opening: str
    answer: str
    changed: bool
    stale: str | None = None  # what an answer from outdated KV would be

    @property
    def score(self) -> str:
        """Ports are compared as numbers, commands as text, other answers by their words."""
        return "digits" if self.stale is not None else "command" if self.opening else "words"


Change = Callable[[Body], Body]


def read_agent_breaks(
    request: SourceRequest, shorten: Callable[[AgentSession], AgentSession | None] = lambda session: session
) -> list[SourceRecord]:
    """``max_items_per_dataset`` limits records, which are turns: 8 for a session.

    ``shorten`` makes sessions fit a model's context, or leaves them out, before breaks are planted.
    """
    records = []
    for file in agent_files(request, "agent_breaks"):
        shortened = map(shorten, agent_sessions(file.rows(), file.name))
        sessions = [session for session in shortened if session is not None]
        records += request.limited(_records(sessions, file.name, request.seed))
    if not records:
        raise ConfigurationError(
            f"--data-dir {request.data_dir}: agent_breaks needs sessions that grow one prompt over {TURNS} calls; "
            "none does"
        )
    return records


def _records(sessions: Sequence[AgentSession], dataset: str, seed: int) -> Iterator[SourceRecord]:
    """Kinds in a drawn order, again and again, so that any number of sessions has about as many of each."""
    order = Draws(seed, dataset, "kinds")
    kinds = order.shuffled([kind for kind in KINDS if kind != OTHER_TENANT])
    session_number = 0
    for place, session in enumerate(order.shuffled(sessions)):
        kind = kinds[place % len(kinds)]
        draws = Draws(seed, dataset, session.name, kind)
        at = _FIRST_BREAK + draws.below(_LAST_BREAK - _FIRST_BREAK + 1)
        turns = _turns(session, kind, at, draws)
        copies = (kind, OTHER_TENANT) if place % len(kinds) == len(kinds) - 1 else (kind,)
        for own_kind in copies:
            yield from _records_of(session, turns, dataset, own_kind, session_number)
            session_number += 1


def _records_of(
    session: AgentSession, turns: Sequence[_Turn], dataset: str, kind: str, number: int
) -> Iterator[SourceRecord]:
    since: int | None = None
    for place, turn in enumerate(turns):
        since = 0 if turn.changed else None if since is None else since + 1
        yield SourceRecord(
            dataset=dataset,
            source_id=f"{number:04d}-{place}",
            context=f"{_chat_text(turn.body)}<|im_start|>assistant\n{turn.opening}",
            answers=(turn.answer,),
            verbatim=True,
            metadata={
                "session_id": f"{number:04d}",
                "recorded_session": session.name,
                "tenant": f"tenant-{number:04d}",
                "turn": place,
                "break": kind,
                "turns_since_break": since,
                "is_tool_call": bool(turn.opening) and turn.stale is None,
                "stale_answer": turn.stale,
                "score": turn.score,
                "think_s": session.steps[session.first + place].pause_s,
            },
        )


def _turns(session: AgentSession, kind: str, at: int, draws: Draws) -> list[_Turn]:
    below = draws.below
    ports = _two_ports(below)
    head = _head(ports[0] if kind == "fact_in_head" else None, below)
    later_head = _changed_head(head, kind, ports, below)
    steps = list(session.steps)
    if kind == "fact_in_history":
        steps[0] = replace(steps[0], text=f"{steps[0].text}\n\nNote: {_FACT}{ports[0]}.")
    if kind in FACTS:
        asked = session.first + at
        steps[asked] = replace(steps[asked], text=f"{steps[asked].text}\n\n{_PROBE}", answer=f"{_FACT}{ports[1]}.")
    change = _change_of_history(head.body(_messages(steps, session.first + at)), kind, ports, below)
    turns = []
    for turn in range(TURNS):
        if kind == EVERY_TURN and turn >= at:
            later_head = replace(later_head, ident=_other(later_head.ident, below))
        messages = _messages(steps, session.first + turn)
        body = change(later_head.body(messages)) if turn >= at else head.body(messages)
        answer = steps[session.first + turn].answer
        asks = kind in FACTS and turn == at
        opening, call = (_FACT, f"{ports[1]}.") if asks else opening_and_call(answer)
        changed = kind != NO_BREAK and (turn == at or (kind == EVERY_TURN and turn > at))
        turns.append(_Turn(body, opening, call, changed, f"{ports[0]}." if asks else None))
    return turns


def _head(port: str | None, below: Below) -> _Head:
    ident = f"x-billing-id: {_hex(8, below)}-{_hex(4, below)}1;"
    moment = f"Current time: 2026-{1 + below(12):02}-{1 + below(28):02}T{below(24):02}:{below(60):02}:{below(60):02}Z."
    memory = _MEMORY if port is None else (*_MEMORY, f"- {_FACT}{port}.")
    spare = below(len(_TOOLS))  # one tool remains to be added
    return _Head(ident, moment, _ROLES[0], memory, tuple(tool for at, tool in enumerate(_TOOLS) if at != spare))


def _changed_head(head: _Head, kind: str, ports: tuple[str, str], below: Below) -> _Head:
    body = head.body(())
    match kind:
        case "date":
            return replace(head, moment=_other(head.moment, below))
        case "id":
            return replace(head, ident=_other(head.ident, below))
        case "tools_added":
            return replace(head, tools=tuple(changes.add_tool(body, _TOOLS, below)["tools"]))
        case "tools_removed":
            return replace(head, tools=tuple(changes.remove_tool(body, below)["tools"]))
        case "tools_reordered":
            return replace(head, tools=tuple(changes.reorder_tools(body, below)["tools"]))
        case "memory_edited":
            edited = below(len(head.memory))
            return replace(
                head, memory=tuple(_NEW_MEMORY if at == edited else line for at, line in enumerate(head.memory))
            )
        case "system_switched":
            return replace(head, role=_ROLES[1])
        case "fact_in_head":
            return replace(head, memory=tuple(line.replace(ports[0], ports[1]) for line in head.memory))
    return head


def _change_of_history(body: Body, kind: str, ports: tuple[str, str], below: Below) -> Change:
    """From the request of the break: what happens to the messages of this request and of every later one."""
    messages = body["messages"]
    match kind:
        case "history_compacted":
            until = len(messages) - 3
            done = [message["content"].strip() for message in messages[1:until] if message["role"] == "assistant"]
            lines = (" ".join(text.partition("```")[0].split())[:200] for text in done)
            summary = "\n".join([messages[1]["content"], "", "Summary of the work so far:", *(f"- {x}" for x in lines)])
            return lambda later: changes.compact_history(later, until, summary)
        case "file_reread":
            earlier = [at for at in range(2, len(messages) - 1) if messages[at]["role"] == "user"]
            stale = max(earlier, key=lambda at: len(messages[at]["content"]))
            return _reread(messages[stale]["content"], stale, len(messages) - 1, below)
        case "fact_in_history":
            return lambda later: changes.with_content(
                later, 1, later["messages"][1]["content"].replace(f"{_FACT}{ports[0]}", f"{_FACT}{ports[1]}")
            )
    return lambda later: later


def _reread(content: str, stale: int, newest: int, below: Below) -> Change:
    """The file was edited and is read again: its old content leaves the history, its new one ends the request."""
    lines = content.split("\n")
    lines.insert(below(len(lines) + 1), "# TODO: remove this line once the fix is merged")
    edited = "\n".join(lines)

    def change(body: Body) -> Body:
        shorter = changes.with_content(body, stale, "[an older version of a file that is read again below]")
        return changes.with_content(shorter, newest, f"{body['messages'][newest]['content']}\n\n{edited}")

    return change


def _messages(steps: Sequence[Step], last: int) -> list[Body]:
    """User and assistant messages up to the text of the step ``last``."""
    messages: list[Body] = []
    for number, step in enumerate(steps[: last + 1]):
        messages.append({"role": "user", "content": step.text})
        if number < last and step.answer:
            messages.append({"role": "assistant", "content": step.answer})
    return messages


def _chat_text(body: Body) -> str:
    """ChatML, as SmolLM2 and Qwen are trained with; tools follow the system prompt, one JSON object per line."""
    messages: list[dict[str, Any]] = body["messages"]
    tools = "\n".join(json.dumps(tool, sort_keys=True) for tool in body["tools"])
    contents = [f"{messages[0]['content']}\n\n# Tools\n{tools}", *(message["content"] for message in messages[1:])]
    return "".join(
        f"<|im_start|>{message['role']}\n{content}<|im_end|>\n"
        for message, content in zip(messages, contents, strict=True)
    )


def _two_ports(below: Below) -> tuple[str, str]:
    """They differ from the first digit on, so that an answer shows at once which one it was read from."""
    first = 1 + below(9)
    second = 1 + (first + below(8)) % 9
    return f"{first}{below(1000):03}", f"{second}{below(1000):03}"


def _other(line: str, below: Below) -> str:
    changed = line
    while changed == line:
        changed = changes.reworded(line, below)
    return changed


def _hex(digits: int, below: Below) -> str:
    return "".join("0123456789abcdef"[below(16)] for _ in range(digits))
