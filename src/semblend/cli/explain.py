"""``semblend explain REQUEST_ID``: what became of a request, from the event stream an adapter writes."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from sembase.command_line import ExitCode
from sembase.streams import write_out
from semblend.contract import (
    Declined,
    DonorRegistered,
    Event,
    EventFormatError,
    FaultContained,
    GuardChecked,
    LoadAdvertised,
    LookupFinished,
    Materialized,
    decode_line,
)

NAME: Final = "explain"
SUMMARY: Final = "Say what became of a request and why: found, loaded, declined, turned off by the guard."
EXAMPLES: Final = "  semblend explain cmpl-3f2a --events events.jsonl"
_GUARD_OFF: Final = "guard_off:"
_APPENDED: Final = re.compile(r"(-\d+)?-[0-9a-f]{8}")  # by vLLM to the id it gave the client: choice and own digits


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("request_id", metavar="REQUEST_ID", help="of the answer, or as the events name it")
    command.add_argument("--events", type=Path, required=True, metavar="FILE", help="the adapter's event stream")


def execute(options: argparse.Namespace) -> ExitCode:
    said = [line for event in _events(options.events) if (line := sentence(event, options.request_id)) is not None]
    write_out("".join(f"{line}\n" for line in said) or f"no event of request '{options.request_id}'\n")
    return ExitCode.OK if said else ExitCode.GATE_FAILED


def sentence(event: Event, request_id: str) -> str | None:
    """What an event says of this request; None where it is about another."""
    named = str(getattr(event, "request_id", ""))
    if not named.startswith(request_id) or not _is_own(named.removeprefix(request_id)):
        return None
    match event:
        case LookupFinished():
            result = event.decline_reason or f"{event.reusable_tokens} tokens in {event.runs} runs planned"
            return f"look-up: {event.exact_prefix_tokens} of {event.prompt_tokens} tokens exact; {result}"
        case LoadAdvertised():
            return f"claimed: {event.tokens} tokens behind position {event.boundary}"
        case Materialized():
            return f"blended: {event.reused_tokens} tokens loaded, {event.computed_tokens} computed"
        case Declined() if event.reason.startswith(_GUARD_OFF):
            shape = event.reason.removeprefix(_GUARD_OFF)
            return f"declined: the guard has turned off the class '{shape}' ({event.detail}); see `semblend guard`"
        case Declined():
            return f"declined: {event.reason}" + (f" ({event.detail})" if event.detail else "")
        case FaultContained():
            return f"went cold after a fault in {event.stage}: {event.error}"
        case GuardChecked():
            return f"checked by the guard: KL at least {event.kl:.4f} ({event.workload_class})"
        case DonorRegistered():
            return f"became donor {event.donor_id} with {event.tokens} tokens"
        case _:
            return None


def _is_own(rest: str) -> bool:
    return not rest or _APPENDED.fullmatch(rest) is not None


def _events(path: Path) -> Iterator[Event]:
    """Lines that are none of ours are left out: a stream may have been cut in the middle of one."""
    with path.open(encoding="utf-8", errors="replace") as stream:
        for line in stream:
            try:
                yield decode_line(line).event
            except EventFormatError:
                continue
