"""Agent calls ``{timestamp, session_id?, input, output}``, sorted by time because session files are concatenated."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from sembase.errors import ConfigurationError
from sembench.workload.readers.fields import text_of
from sembench.workload.record import SourceRecord


def read_agent(rows: Iterable[Mapping[str, Any]], dataset: str) -> Iterator[SourceRecord]:
    calls = []
    for index, row in enumerate(rows):
        where = f"{dataset}[{index}]"
        timestamp = row.get("timestamp")
        if not isinstance(timestamp, int | float) or isinstance(timestamp, bool):
            raise ConfigurationError(f"{where}: 'timestamp' must be a number")
        calls.append((timestamp, index, text_of(row, "input", where), row.get("session_id")))
    for position, (timestamp, index, prompt, session) in enumerate(sorted(calls, key=lambda call: call[:2])):
        yield SourceRecord(
            dataset=dataset,
            source_id=f"{index:06d}",
            context=prompt,
            verbatim=True,
            metadata={"session_id": session, "source_index": position, "timestamp": timestamp},
        )
