"""Lines of a log in one dialect -> its summary. Unreadable lines are counted and never stop the run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import BinaryIO, Final

from sembench.engine_events.dialects import DIALECTS, LineResult
from sembench.engine_events.summary import EngineSummary
from sembench.engine_events.tally import Tally

MAX_LINE_BYTES: Final = 1 << 20
_ERRORS: Final = ("ERROR", "Traceback")
_WARNINGS: Final = (
    "[E:onnxruntime:",
    "Non-zero status code returned",
    "Shape mismatch attempting to re-use buffer",
)


def summarize(engine: str, lines: Iterable[str]) -> EngineSummary:
    dialect, tally = DIALECTS.get(engine)(), Tally()
    results = Counter[LineResult]()
    dialect.begin(tally)
    for line in lines:
        tally.line += 1
        results[dialect.read_line(line, tally)] += 1
        if any(mark in line for mark in _ERRORS):
            tally.error(line)
        if any(mark in line for mark in _WARNINGS):
            tally.warn(line)
    dialect.finish(tally)
    return tally.finish(
        engine,
        lines=tally.line,
        understood=results[LineResult.UNDERSTOOD],
        other=results[LineResult.OTHER],
        damaged=results[LineResult.DAMAGED],
    )


def lines_of(stream: BinaryIO) -> Iterator[str]:
    """Lines of a log of any size. Invalid UTF-8 is replaced; a line is cut after ``MAX_LINE_BYTES``."""
    while line := stream.readline(MAX_LINE_BYTES):
        rest = line
        while rest and not rest.endswith(b"\n"):
            rest = stream.readline(MAX_LINE_BYTES)
        yield line.decode("utf-8", errors="replace")
