"""Write a made-up log of 200 OpenAI chat requests for ``kvmend estimate``; it is the same in every run.

108 ask about long contracts under changing instructions, 48 are turns of four agents whose date or tools change in
mid-session, 16 begin with the same handbook, 10 have the passages of a search in changing order, 10 are about short
notes, and 8 about texts that no other request has.
"""

import argparse
import json
import random
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

draws = random.Random(7)
REQUESTS = 200
START = 1_795_040_400  # 100 minutes before midnight
PARTIES = ("harbour", "mill", "orchard", "quarry", "brewery", "shipyard", "museum", "bakery", "clinic", "library")
VERBS = ("pays", "delivers", "insures", "inspects", "returns", "replaces", "stores", "repairs", "approves")
GOODS = ("crates", "cables", "pumps", "ledgers", "windows", "engines", "barrels", "lamps", "permits", "sails")
TASKS = (
    "Summarise the contract for the board in five sentences.",
    "List every amount with the party that owes it.",
    "Which duties end within ninety days, and who must act?",
    "Extract all obligations as JSON with party, verb and object.",
    "Explain to a new colleague what can go wrong here.",
    "Compare what both parties may return, and on what terms.",
)
TOOLS = ("search_orders", "read_order", "refund_order", "write_note")


def text(title: str, lines: int) -> str:
    """About 22 tokens per line; the same for the same title, and shared with no other."""
    words = random.Random(title)
    return f"{title}\n" + "\n".join(
        f"The {words.choice(PARTIES)} {words.choice(VERBS)} {words.randrange(2, 900)} {words.choice(GOODS)} for the "
        f"{words.choice(PARTIES)} within {words.randrange(5, 120)} days, or {words.choice(VERBS)} the "
        f"{words.choice(GOODS)} at {words.randrange(10, 9000)} euros."
        for _ in range(lines)
    )


def chat(system: str, *users: str) -> dict[str, Any]:
    return {"messages": [{"role": "system", "content": system}, *({"role": "user", "content": each} for each in users)]}


def instruction() -> str:
    return f"You work for the {draws.choice(PARTIES)}. {draws.choice(TASKS)}"


def contract(number: int, turn: int) -> dict[str, Any]:
    """2K to 6K tokens below the instruction."""
    party = draws.choice(PARTIES)
    return chat(instruction(), text(f"Contract of the {party}", 95 + 20 * PARTIES.index(party)))


def agent(name: str, has_date: bool, number: int, turn: int) -> dict[str, Any]:
    """The date changes at midnight, in the middle of the log, or a tool is added from the sixth turn on."""
    date = f" Today is {18 + (2 * number >= REQUESTS)} November 2026." if has_date else ""
    body = chat(f"You are the agent {name} of a mail-order shop.{date}\n{text('Rules', 20)}", f"Handle case {name}.")
    for step in range(turn):
        call = {"id": f"call_{step}", "type": "function", "function": {"name": TOOLS[step % 3], "arguments": "{}"}}
        body["messages"] += [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"call_{step}", "content": text(f"Orders {name} {step}", 15)},
        ]
    names = TOOLS if has_date or turn >= 6 else TOOLS[:3]
    body["tools"] = [{"type": "function", "function": {"name": each, "parameters": {}}} for each in names]
    return body | {"session_id": name}


def support(number: int, turn: int) -> dict[str, Any]:
    return chat(text("Handbook", 120), f"How are {draws.choice(GOODS)} returned after {number} days?")


def search(number: int, turn: int) -> dict[str, Any]:
    passages = [text(f"Passage on {goods}", 15) for goods in draws.sample(GOODS[:8], 6)]
    return chat("Answer from the passages.", *passages, f"Who {draws.choice(VERBS)} {draws.choice(GOODS)}?")


def note(number: int, turn: int) -> dict[str, Any]:
    return chat(instruction(), text(f"Note {turn % 3}", 18))


def letter(number: int, turn: int) -> dict[str, Any]:
    return chat("Answer the letter.", text(f"Letter {number}", 50))


KINDS: dict[Callable[[int, int], dict[str, Any]], int] = {
    contract: 108,
    **{partial(agent, name, has_date): 12 for name, has_date in (("A", True), ("B", True), ("C", False), ("D", False))},
    support: 16,
    search: 10,
    note: 10,
    letter: 8,
}


def requests() -> Iterator[dict[str, Any]]:
    order = [kind for kind, count in KINDS.items() for _ in range(count)]
    draws.shuffle(order)
    turns = dict.fromkeys(KINDS, 0)
    for number, kind in enumerate(order):
        yield {"timestamp": START + 60 * number, "model": "served-model", **kind(number, turns[kind])}
        turns[kind] += 1


arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
arguments.add_argument("file", type=Path, nargs="?", default=Path("requests.jsonl"), help="default: %(default)s")
path: Path = arguments.parse_args().file
path.write_text("".join(json.dumps(each) + "\n" for each in requests()), encoding="utf-8")
print(f"{path}: {REQUESTS} requests, {path.stat().st_size / 1e6:.1f} MB")
