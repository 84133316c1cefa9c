"""vLLM server logs with ``--enable-log-requests``: one line with the prompt of each request, among any other lines.

Recent versions log prompts at DEBUG only. The lines have no year: the year 2000 is assumed, so a log must not cross New
Year. Nothing is known about the replies.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from sembase.errors import ContractError
from sembase.trace.files import iter_lines
from sembase.trace.formats.interface import record_format
from sembase.trace.formats.logged_request import RecordBuilder, Reply, pieces_of_body, time_ms
from sembase.trace.record import TraceRecord

_REQUEST: Final = re.compile(
    r"(?:Request (?P<new>\S+) details|Received request (?P<old>\S+)): prompt: "
    r"(?P<prompt>None|'[^'\\]*+(?:\\.[^'\\]*+)*+'|\"[^\"\\]*+(?:\\.[^\"\\]*+)*+\")"  # possessive: nothing to remember
)
_INFO_ONLY: Final = re.compile(r"Received request \S+: params: ")
_IDS: Final = re.compile(r"prompt_token_ids: \[([\d, ]*)\]")
_TIME: Final = re.compile(r"\b(\d\d-\d\d) (\d\d:\d\d:\d\d)\b")
_LINE: Final = re.compile(rb"(?:DEBUG|INFO|WARNING) \d\d-\d\d \d\d:\d\d:\d\d \[")


def records(path: Path) -> Iterator[TraceRecord]:
    builder = RecordBuilder()
    without_prompt = found = 0
    for number, line in iter_lines(path):
        text = line.decode("utf-8", "replace")
        request = _REQUEST.search(text)
        if request is None:
            without_prompt += _INFO_ONLY.search(text) is not None
            continue
        ids = _IDS.search(text, request.end())
        try:
            prompt = ast.literal_eval(request["prompt"])
        except (SyntaxError, ValueError):  # an escape or a zero byte that Python does not write
            raise ContractError(f"{path.name} line {number}: the prompt is not a Python text") from None
        body = {
            "prompt": prompt,
            "prompt_token_ids": [int(each) for each in ids[1].split(",") if each.strip()] if ids else None,
        }
        stamp = _TIME.search(text)
        if stamp is None:
            raise ContractError(f"{path.name} line {number}: a request without a time (MM-DD HH:MM:SS)")
        at_ms = time_ms(f"2000-{stamp[1]}T{stamp[2]}+00:00")
        record = builder.record(pieces_of_body(body), request["new"] or request["old"], at_ms, Reply())
        if record is not None:
            found += 1
            yield record
    if not found:
        raise ContractError(
            f"{path.name}: no prompts ({without_prompt} requests without one); start vLLM with --enable-log-requests "
            "and VLLM_LOGGING_LEVEL=DEBUG"
        )


FORMAT = record_format(
    "vllm_log",
    "a vLLM server log with the prompts of its requests (--enable-log-requests, level DEBUG)",
    lambda head: _LINE.search(head) is not None,
    records,
)
