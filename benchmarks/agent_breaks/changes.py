"""Changes to a chat request that break the prefix of its session: a body in, the same body with one change out.

``planted`` puts them into recorded agent sessions, ``benchmarks.estimate.planted`` into pairs of requests whose
cause must be recognised. ``below(n)`` draws an integer in ``[0, n)``: each caller keeps its generator.
Every function leaves its input as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

Body = dict[str, Any]
Below = Callable[[int], int]

SUMMARY: Final = "Summary of the conversation so far: the user wants to change a booking and gave all details."
_WEEKDAYS: Final = ("Monday", "Tuesday", "Friday", "Sunday")
_PERMISSIONS: Final = ("offer refunds", "waive fees", "upgrade members")
_WORDS: Final = ("certainly", "instead", "however", "kindly")


def with_content(body: Body, at: int, content: str) -> Body:
    """The message at ``at`` with another content."""
    messages = list(body["messages"])
    messages[at] = {**messages[at], "content": content}
    return {**body, "messages": messages}


def with_line(body: Body, line: str) -> Body:
    """A line of its own after the first quarter of the system prompt, or before it if it has no paragraphs."""
    policy = body["messages"][0]["content"]
    at = policy.find("\n\n", len(policy) // 4)
    return with_content(body, 0, f"{line}\n\n{policy}" if at < 0 else f"{policy[:at]}\n\n{line}{policy[at:]}")


def reworded(line: str, below: Below) -> str:
    """The same sentence at another time or with another id: other digits, another weekday."""
    for day in _WEEKDAYS:
        line = line.replace(day, _WEEKDAYS[below(len(_WEEKDAYS))])
    return "".join(str(below(10)) if letter.isdigit() else letter for letter in line)


def reorder_tools(body: Body, below: Below) -> Body:
    """The same tools in another order; there must be two different ones."""
    tools = list(body["tools"])
    while tools == body["tools"]:
        for last in range(len(tools) - 1, 0, -1):
            other = below(last + 1)
            tools[last], tools[other] = tools[other], tools[last]
    return {**body, "tools": tools}


def remove_tool(body: Body, below: Below) -> Body:
    gone = below(len(body["tools"]))
    return {**body, "tools": [tool for at, tool in enumerate(body["tools"]) if at != gone]}


def add_tool(body: Body, known: Sequence[Body], below: Below) -> Body:
    """The first of ``known`` that the request does not have, anywhere in its list."""
    tools = list(body["tools"])
    tools.insert(below(len(tools) + 1), next(tool for tool in known if tool not in tools))
    return {**body, "tools": tools}


def add_rule(body: Body, below: Below) -> Body:
    """One more paragraph in the system prompt."""
    parts = body["messages"][0]["content"].split("\n\n")
    added = f"You may now also {_PERMISSIONS[below(len(_PERMISSIONS))]} when a supervisor agrees."
    parts.insert(1 + below(len(parts) - 1), added)
    return with_content(body, 0, "\n\n".join(parts))


def compact_history(body: Body, until: int, summary: str = SUMMARY) -> Body:
    """A summary in place of the messages after the system prompt and before ``until``."""
    messages = body["messages"]
    return {**body, "messages": [messages[0], {"role": "user", "content": summary}, *messages[until:]]}


def edit_message(body: Body, at: int, below: Below) -> Body:
    """One word of a message replaced and a sentence added; what follows it stays."""
    words = str(body["messages"][at]["content"]).split(" ")
    word = _WORDS[below(len(_WORDS))]
    words[below(len(words))] = word
    return with_content(body, at, " ".join([*words, "That is all I can say about it."]))
