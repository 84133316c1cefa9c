"""``kvmend explain REQUEST_ID``: the outcome of a request, from the event stream that an adapter writes."""

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
SUMMARY: Final = "Explain the outcome of a request: found, reused, declined, or turned off by the guard."
EXAMPLES: Final = "  kvmend explain cmpl-3f2a --events events.jsonl"
_GUARD_OFF: Final = "guard_off:"
_PREPENDED: Final = re.compile(r"([a-z]+[-_])?")  # by vLLM to the x-request-id of a router or client: chatcmpl-, cmpl-
_APPENDED: Final = re.compile(r"(-\d+)?-[0-9a-f]{8}")  # by vLLM to the client's id: the choice and eight hex digits


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("request_id", metavar="REQUEST_ID", help="request id of the answer or of the events")
    command.add_argument("--events", type=Path, required=True, metavar="FILE", help="event stream of the adapter")


def execute(options: argparse.Namespace) -> ExitCode:
    lines = [line for event in _events(options.events) if (line := sentence(event, options.request_id)) is not None]
    write_out("".join(f"{line}\n" for line in lines) or f"no events for request '{options.request_id}'\n")
    return ExitCode.OK if lines else ExitCode.GATE_FAILED


def sentence(event: Event, request_id: str) -> str | None:
    """One line about this event; None if it belongs to another request."""
    if not _is_own(str(getattr(event, "request_id", "")), request_id):
        return None
    match event:
        case LookupFinished():
            result = event.decline_reason or f"{event.reusable_tokens} tokens planned (runs: {event.runs})"
            return f"look-up: {event.exact_prefix_tokens} of {event.prompt_tokens} tokens exact; {result}"
        case LoadAdvertised():
            return f"claimed: {event.tokens} tokens from position {event.boundary}"
        case Materialized():
            return f"blended: {event.reused_tokens} tokens reused, {event.computed_tokens} computed"
        case Declined() if event.reason.startswith(_GUARD_OFF):
            shape = event.reason.removeprefix(_GUARD_OFF)
            return f"declined: the guard turned off the class '{shape}' ({event.detail}); see `kvmend guard`"
        case Declined():
            return f"declined: {event.reason}" + (f" ({event.detail})" if event.detail else "")
        case FaultContained():
            return f"prefilled by the engine after an error in {event.stage}: {event.error}"
        case GuardChecked():
            return f"checked by the guard: KL at least {event.kl:.4f} ({event.workload_class})"
        case DonorRegistered():
            return f"became donor {event.donor_id} with {event.tokens} tokens"
        case _:
            return None


def _is_own(named: str, request_id: str) -> bool:
    """The engine's id is the given one, or made of it."""
    before, found, after = named.rpartition(request_id) if request_id else ("", "", "")
    return bool(found) and _PREPENDED.fullmatch(before) is not None and (not after or bool(_APPENDED.fullmatch(after)))


def _events(path: Path) -> Iterator[Event]:
    """Skips lines that are not events: the stream may have been truncated in the middle of a line."""
    with path.open(encoding="utf-8", errors="replace") as stream:
        for line in stream:
            try:
                yield decode_line(line).event
            except EventFormatError:
                continue
