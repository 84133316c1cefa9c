"""Records as they come: a line of JSON each, flushed at once; kept without their chunk times, which become gaps."""

from __future__ import annotations

import itertools
import json
from array import array
from collections import deque
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from sembench.load.record import LoadRecord

_RECENT: Final = 2000


def requests_path(output: Path) -> Path:
    return output.with_name(output.name + ".requests.jsonl")


class Collector:
    """``gaps_ms`` are the times between token-bearing chunks of all answers that ended well."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.records: list[LoadRecord] = []
        self.gaps_ms = array("d")
        self.recent: deque[LoadRecord] = deque(maxlen=_RECENT)
        self.failed = 0
        self._stream = path.open("w", encoding="utf-8", newline="\n")

    def keep(self, record: LoadRecord) -> None:
        self._stream.write(json.dumps(record.to_json(), ensure_ascii=False, allow_nan=False) + "\n")
        self._stream.flush()
        if record.ok:
            chunks = record.chunk_ms
            self.gaps_ms.extend([after - before for before, after in itertools.pairwise(chunks)])
        else:
            self.failed += 1
        slim = replace(record, chunk_ms=())
        self.records.append(slim)
        self.recent.append(slim)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stream.close()
