"""Decision records to ``decisions-<time>-<pid>-<n>.jsonl``: one writer thread, bounded queue and disk, counted drops.

In: records from the event loop, never waiting; out: whole lines, in at most ``files`` files of ``file_bytes`` each.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from sembase.errors import ConfigurationError, ContractError
from sembase.jsonl import NumberedFiles, QueuedLog
from semgate.router.state.decisions import DecisionRecord, record_from_json

PREFIX: Final = "decisions"
QUEUE_RECORDS: Final = 10_000


class DecisionLog:
    """10,000 queued records take about 15 MB. With ``files`` 0 nothing is written."""

    def __init__(self, folder: Path, *, files: int, file_bytes: int, queue_records: int = QUEUE_RECORDS) -> None:
        self._folder = folder
        self._is_on = files > 0
        numbered = NumberedFiles(folder, PREFIX, max_bytes=file_bytes, max_files=files)
        self._log = QueuedLog("semgate-decisions", numbered, DecisionRecord.as_line, max_items=queue_records)

    @property
    def dropped(self) -> int:
        return self._log.counts.dropped_full

    @property
    def failed(self) -> int:
        return self._log.counts.dropped_error

    def start(self) -> None:
        if not self._is_on:
            return
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigurationError(
                f"cannot write decisions to {self._folder}: {error.strerror}; give a writable folder with "
                "--routing-output-dir, or --decision-files 0"
            ) from None
        self._log.start()

    def add(self, record: DecisionRecord) -> None:
        """Never waits; what does not fit into the queue is dropped and counted."""
        if self._is_on:
            self._log.put(record)

    def close(self) -> None:
        """Writes what is queued, then ends the thread."""
        self._log.close()


def find_decisions(folder: Path, request_id: str, limit: int = 10) -> list[DecisionRecord]:
    """Newest first. A torn last line, left by a killed process, is skipped."""
    found: list[DecisionRecord] = []
    for path in sorted(folder.glob(f"{PREFIX}-*.jsonl"), reverse=True):
        found += reversed(list(_matching(path, request_id)))
        if len(found) >= limit:
            break
    return found[:limit]


def _matching(path: Path, request_id: str) -> Iterator[DecisionRecord]:
    needle = json.dumps(request_id).encode()
    with path.open("rb") as stream:
        for line in stream:
            if needle not in line:
                continue
            with contextlib.suppress(ValueError, ContractError):
                record = record_from_json(json.loads(line))
                if record.request_id == request_id:
                    yield record
