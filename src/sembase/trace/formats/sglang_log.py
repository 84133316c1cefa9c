"""SGLang server logs with ``--log-requests --log-requests-format json --log-requests-level 3``, among any other lines.

A request is read from its ``request.finished`` line, which has the prompt and the token counts. Times have no zone:
UTC is assumed. Levels below 3 cut or omit the prompts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from sembase.errors import ContractError
from sembase.trace.files import iter_json_lines, iter_lines
from sembase.trace.formats.interface import record_format
from sembase.trace.formats.logged_request import RecordBuilder, Reply, first_count, first_text, pieces_of_body, time_ms
from sembase.trace.record import TraceRecord

_EVENT: Final = b'"event": "request.finished"'
_LINE: Final = re.compile(rb"\A\s*\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d")


def records(path: Path) -> Iterator[TraceRecord]:
    builder = RecordBuilder()
    finished = found = 0
    lines = ((number, line[line.find(b"{") :]) for number, line in iter_lines(path) if _EVENT in line)
    event: Any
    for where, event in iter_json_lines(path, lines):
        finished += 1
        body = event.get("obj") if isinstance(event, dict) else None
        if not isinstance(body, dict):
            raise ContractError(f"{where}: a finished request without 'obj'")
        out = event.get("out")
        about: Any = out.get("meta_info") if isinstance(out, dict) else None
        about = about if isinstance(about, dict) else {}
        seconds = about.get("e2e_latency")
        total_ms = 1000.0 * seconds if isinstance(seconds, float | int) else None
        ended_ms = time_ms(event.get("timestamp"))
        facts = Reply(
            session=first_text(body.get("session_id")),
            prompt_tokens=first_count(about.get("prompt_tokens")),
            cached_tokens=first_count(about.get("cached_tokens")),
            output_tokens=first_count(about.get("completion_tokens")),
            total_ms=total_ms,
        )
        at_ms = None if ended_ms is None else ended_ms - (total_ms or 0.0)
        record = builder.record(pieces_of_body(body), first_text(event.get("rid")), at_ms, facts)
        if record is not None:
            found += 1
            yield record
    if not found:
        raise ContractError(
            f"{path.name}: no prompts ({finished} finished requests without one); start SGLang with --log-requests "
            "--log-requests-format json --log-requests-level 3"
        )


FORMAT = record_format(
    "sglang_log",
    "an SGLang server log with JSON request lines (--log-requests-format json, level 3)",
    lambda head: _LINE.match(head) is not None or (b'"request.received' in head and b'"rid"' in head),
    records,
)
