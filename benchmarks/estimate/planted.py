"""Prefix breaks planted in real conversations: real texts in, records of sessions with one known cause each out.

Conversations are those of tau-bench (system prompt with a policy, turns of user, assistant and tools), documents are
the passages of musique_s. A session is one request, and a second one that would continue it but for the planted change.
``python -m benchmarks.estimate.planted`` prints precision and recall for 200 breaks of every cause.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from scripts.data.folder import TEXTS

from benchmarks.agent_breaks import changes
from benchmarks.agent_breaks.changes import Body
from sembase.tokenizer import open_tokenizer
from sembase.trace.formats.logged_request import RecordBuilder, Reply, pieces_of_body
from sembase.trace.record import TraceRecord
from sembase.trace.reuse_counter import ReuseCounter
from semestimate.breaks import BreakFinder
from semestimate.causes import Cause
from semestimate.request import RequestReader

Pair = tuple[Body, Body]
_TOOLS: Final = tuple(
    {
        "type": "function",
        "function": {
            "name": name,
            "description": f"{name.replace('_', ' ')} by the ids that the user gave, and return what was found",
            "parameters": {"type": "object", "properties": {field: {"type": "string"} for field in fields}},
        },
    }
    for name, fields in {
        "search_flight": ("origin", "destination", "date"),
        "book_reservation": ("user_id", "flights", "payment"),
        "cancel_reservation": ("reservation_id",),
        "get_user_details": ("user_id",),
        "get_reservation_details": ("reservation_id",),
        "send_certificate": ("user_id", "amount"),
        "update_baggages": ("reservation_id", "total"),
    }.items()
)
_INSTRUCTIONS: Final = (
    "Summarise the following document for an executive in three sentences.",
    "List every person that the following document mentions, with their role.",
    "Translate the key facts of this document into short bullet points.",
    "Which claims of the following text can be verified, and how?",
    "Write five quiz questions about the following document.",
    "Extract all places and years from the document below as a table.",
)


@dataclass(frozen=True, slots=True)
class Texts:
    conversations: Sequence[Sequence[dict[str, Any]]]
    passages: Sequence[str]


def read_texts(folder: Path = TEXTS) -> Texts:
    with gzip.open(folder / "tau_bench_airline.json.gz") as stream:
        conversations = [each["traj"] for each in json.load(stream) if len(each["traj"]) >= 12]
    with gzip.open(folder / "musique_s.json.gz") as stream:
        passages = list(dict.fromkeys(ctx["text"] for each in json.load(stream) for ctx in each["ctxs"]))
    return Texts(conversations, passages)


def grown(texts: Texts, draws: random.Random) -> Pair:
    """Two requests of one conversation, the second some turns later."""
    messages = list(draws.choice(texts.conversations))
    first = draws.randrange(8, len(messages) - 2)
    tools = draws.sample(_TOOLS, draws.randrange(3, len(_TOOLS)))
    before = {"messages": messages[:first], "tools": tools}
    return deepcopy(before), deepcopy({"messages": messages[: first + 2], "tools": tools})


def _moment(draws: random.Random) -> str:
    year, month, day = draws.randrange(2020, 2030), draws.randrange(1, 13), draws.randrange(1, 29)
    hour, minute = draws.randrange(24), draws.randrange(60)
    return draws.choice(
        (
            f"Current time: {year}-{month:02}-{day:02}T{hour:02}:{minute:02}:{draws.randrange(60):02}Z.",
            f"Today is {draws.choice(('Monday', 'Tuesday', 'Friday', 'Sunday'))}, "
            f"{draws.choice(('January', 'May', 'October'))} {day}, {year}.",
            f"request id {draws.getrandbits(64):016x}1",
            f"Session {draws.getrandbits(32):08x}-{draws.getrandbits(16):04x}-4{draws.getrandbits(12):03x}, "
            f"turn {draws.randrange(100)}",
        )
    )


def date_or_id(texts: Texts, draws: random.Random) -> Pair:
    before, after = grown(texts, draws)
    state = draws.getstate()
    moments: list[str] = []
    for _ in range(2):
        same_form = random.Random()
        same_form.setstate(state)
        moment = _moment(same_form)
        while moments and moment == moments[0]:
            moment = changes.reworded(moment, draws.randrange)
        moments.append(moment)
    return changes.with_line(before, moments[0]), changes.with_line(after, moments[1])


def tools_reordered(texts: Texts, draws: random.Random) -> Pair:
    before, after = grown(texts, draws)
    return before, changes.reorder_tools(after, draws.randrange)


def tools_changed(texts: Texts, draws: random.Random) -> Pair:
    before, after = grown(texts, draws)
    if draws.random() < 0.5:
        return before, changes.remove_tool(after, draws.randrange)
    return before, changes.add_tool(after, _TOOLS, draws.randrange)


def system_changed(texts: Texts, draws: random.Random) -> Pair:
    before, after = grown(texts, draws)
    return before, changes.add_rule(after, draws.randrange)


def history_compacted(texts: Texts, draws: random.Random) -> Pair:
    before, after = grown(texts, draws)
    return before, changes.compact_history(after, len(after["messages"]) - draws.randrange(2, 5))


def history_edited(texts: Texts, draws: random.Random) -> Pair:
    """A message after the first turns is reworded; what follows stays."""
    before, after = grown(texts, draws)
    places = [
        at for at in range(1, len(before["messages"]) - 3) if len(str(before["messages"][at].get("content") or "")) > 40
    ]
    return before, changes.edit_message(after, draws.choice(places), draws.randrange)


def document_order(texts: Texts, draws: random.Random) -> Pair:
    chosen = draws.sample(texts.passages, draws.randrange(3, 8))
    order = chosen[:]
    while order == chosen:
        draws.shuffle(order)
    return _retrieved(chosen, "Which of the passages is the oldest?"), _retrieved(order, "Who wrote the second one?")


def _retrieved(passages: Sequence[str], question: str) -> Body:
    content = "\n\n".join([*(f"CONTEXT: {each}" for each in passages), f"USER: {question}"])
    return {
        "messages": [{"role": "system", "content": "Answer from the context."}, {"role": "user", "content": content}]
    }


def new_instruction(texts: Texts, draws: random.Random) -> Pair:
    document = "\n\n".join(draws.sample(texts.passages, draws.randrange(1, 5)))
    old, new = draws.sample(_INSTRUCTIONS, 2)
    role = draws.choice(("system", "user"))

    def body(instruction: str) -> Body:
        if role == "user":
            return {"messages": [{"role": "user", "content": f"{instruction}\n\n{document}"}]}
        return {"messages": [{"role": "system", "content": instruction}, {"role": "user", "content": document}]}

    return body(old), body(new)


PLANTED: Final[dict[Cause | None, Callable[[Texts, random.Random], Pair]]] = {
    Cause.DATE_OR_ID: date_or_id,
    Cause.TOOLS_REORDERED: tools_reordered,
    Cause.TOOLS_CHANGED: tools_changed,
    Cause.SYSTEM_CHANGED: system_changed,
    Cause.HISTORY_COMPACTED: history_compacted,
    Cause.HISTORY_EDITED: history_edited,
    Cause.DOCUMENT_ORDER: document_order,
    Cause.NEW_INSTRUCTION: new_instruction,
    None: grown,
}


def records_of(pair: Pair, session: str, at_ms: float) -> Iterator[TraceRecord]:
    builder = RecordBuilder()
    for turn, body in enumerate(pair):
        record = builder.record(pieces_of_body(body), f"{session}-{turn}", at_ms + turn, Reply(session=session))
        assert record is not None
        yield record


def confusion(texts: Texts, each: int, seed: int = 0) -> Counter[tuple[Cause | None, Cause | None]]:
    """(planted, found) of ``each`` sessions of every cause, and of as many that simply grow."""
    draws = random.Random(seed)
    reader, found = RequestReader(open_tokenizer(None)), Counter[tuple[Cause | None, Cause | None]]()
    for cause, plant in PLANTED.items():
        for number in range(each):
            finder, counter = BreakFinder(), ReuseCounter(memory_bytes=16 << 20)
            broken = None
            for record in records_of(plant(texts, draws), f"{cause}-{number}", 0.0):
                request = reader.request_of(record)
                assert request.digests is not None
                reuse = counter.add(None, request.digests)
                broken = finder.add(request, reuse.number, reuse.prefix_tokens, ())
            found[cause, None if broken is None else broken.cause] += 1
    return found


def scores(found: Counter[tuple[Cause | None, Cause | None]]) -> Iterator[tuple[Cause | None, float, float]]:
    """(cause, precision, recall); None are sessions without a break."""
    for cause in PLANTED:
        right = found[cause, cause]
        named = sum(count for (_, answer), count in found.items() if answer == cause)
        planted = sum(count for (given, _), count in found.items() if given == cause)
        yield cause, right / named if named else 0.0, right / planted


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--each", type=int, default=200, help="breaks of every cause (default: 200)")
    options = parser.parse_args()
    found = confusion(read_texts(), options.each)
    print(f"{options.each} planted breaks of every cause, and {options.each} sessions without one\n")
    print(f"{'cause':<32}{'precision':>10}{'recall':>10}   taken for")
    for cause, precision, recall in scores(found):
        wrong = {
            (answer.value if answer else "no break"): count
            for (given, answer), count in found.items()
            if given == cause and answer != cause
        }
        others = ", ".join(f"{name} {count}" for name, count in wrong.items())
        print(f"{cause.value if cause else 'no break':<32}{precision:>10.3f}{recall:>10.3f}   {others}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
