"""A made-up log of OpenAI chat requests for ``kvmend estimate``: documents under changing instructions, an agent.

``python examples/make_log.py [FILE]`` writes 200 requests (default: ``requests.jsonl``).
"""

import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

draws = random.Random(7)
PLACES = ("harbour", "mill", "glass works", "locks", "garden", "clock tower", "station", "market")
ASKS = ("Summarise the report.", "List every amount.", "Who is responsible?", "Translate the third paragraph.")


def report(number: int) -> str:
    """About 700 tokens that no other report shares."""
    lines = random.Random(number)
    return f"Report {number}.\n" + "\n".join(
        f"{n}. On day {lines.randrange(1, 29)} the {lines.choice(PLACES)} paid {lines.randrange(100, 9999)} euros "
        f"to the {lines.choice(PLACES)} for {lines.randrange(2, 90)} crates; invoice {lines.randrange(10**6)}."
        for n in range(1, 25)
    )


def request(messages: list[dict[str, str]], number: int) -> dict[str, Any]:
    return {"timestamp": 1_760_000_000 + 9 * number, "model": "served-model", "messages": messages}


def requests() -> Iterator[dict[str, Any]]:
    history: list[dict[str, str]] = []
    for number in range(200):
        if number % 4 < 3:  # a document under one of many instructions, which come first
            rules = (
                f"You work for team {draws.randrange(40)}. {draws.choice(ASKS)} Answer in {draws.choice(PLACES)} style."
            )
            yield request([{"role": "system", "content": f"{rules}\n\n{report(draws.randrange(12))}"}], number)
            continue
        if len(history) > 12:
            history = []
        history.append({"role": "user", "content": f"Step {number}: {report(1_000 + number)[:400]}"})
        clock = f"Current time: 2026-11-18T{number % 24:02}:{number % 60:02}:00Z. You are an agent with tools."
        yield request([{"role": "system", "content": clock}, *history], number)
        history.append({"role": "assistant", "content": "Done; the next step follows."})


path = Path(sys.argv[1] if len(sys.argv) > 1 else "requests.jsonl")
path.write_text("".join(json.dumps(each) + "\n" for each in requests()), encoding="utf-8")
print(f"{path}: 200 requests")
