"""A request that one of several tools fulfils with values of a record: the call, in the text or by the API.

The earlier revision has another account in the record.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, Final

from sembench.workload.seeded import Draws
from sembench.workload.tasks.base import CITIES, SECTIONS, Change, Draft, Writer, numbers, sections_with

_PLANS: Final = ("silver", "copper", "bronze", "cobalt", "nickel")
# Name, description, parameters, and what the customer wants. Every parameter is a field of the customer's record.
_TOOLS: Final = (
    ("cancel_plan", "End the plan of an account.", ("account", "plan"), "cancel the plan"),
    ("send_invoice", "Send an invoice to the city of an account.", ("account", "city"), "get an invoice by post"),
    ("pause_account", "Pause an account for a month.", ("account",), "pause the account for a month"),
    ("book_visit", "Book a visit of a technician in a city.", ("city", "account"), "have a technician come"),
    (
        "move_plan",
        "Move a plan to another account holder.",
        ("plan", "account", "city"),
        "hand the plan on to a relative",
    ),
)


def in_text(draws: Draws, words: int) -> Draft:
    """Tools and records are the document, and the answer is JSON."""
    draft, tools = _draft(draws, words)
    lines = [json.dumps(tool["function"], sort_keys=True) for tool in tools]
    catalogue = "\n".join(["Tools, one JSON object per line:", *lines])
    before = '{"name": "'
    return replace(
        draft,
        passages=[catalogue, *draft.passages],
        question=f'{draft.question} Answer with one JSON object: {{"name": tool, "arguments": {{...}}}}.',
        opening=f" {before}",
        before=before,
    )


def by_api(draws: Draws, words: int) -> Draft:
    """Tools are sent as OpenAI's ``tools``; the server's parser returns the call."""
    draft, tools = _draft(draws, words)
    return replace(draft, question=f"{draft.question} Use the right tool.", extra={"tools": tools})


def _draft(draws: Draws, words: int) -> tuple[Draft, list[dict[str, Any]]]:
    writer = Writer(draws)
    people = writer.people(SECTIONS)
    old, *accounts = numbers(draws, SECTIONS + 1)
    records = [{"account": account, "plan": draws.choose(_PLANS), "city": draws.choose(CITIES)} for account in accounts]
    facts = [
        f"{person} lives in {record['city']}, has the account {record['account']} and pays for plan {record['plan']}."
        for person, record in zip(people, records, strict=True)
    ]
    name, _, parameters, wish = draws.choose(_TOOLS)
    order = draws.shuffled(range(SECTIONS))
    gold, stale = (
        json.dumps({"name": name, "arguments": {key: {**records[0], "account": account}[key] for key in parameters}})
        for account in (accounts[0], old)
    )
    draft = Draft(
        passages=sections_with(draws, writer, words, [[facts[place]] for place in order]),
        question=f"{people[0]} wants to {wish}. Call the tool for it with the values of the customer's record.",
        other_question=f"Where does {people[1]} live?",
        answers=(gold,),
        score="tool_call",
        changes=(Change(facts[0], accounts[0], old),),
        earlier_answer=stale,
    )
    return draft, [_definition(*tool[:3]) for tool in draws.shuffled(_TOOLS)]


def _definition(name: str, description: str, parameters: tuple[str, ...]) -> dict[str, Any]:
    properties = {parameter: {"type": "string"} for parameter in parameters}
    schema = {"type": "object", "properties": properties, "required": list(parameters)}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}
