"""Lines of a log in one dialect -> its summary. Unreadable lines are counted and never stop the run."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import BinaryIO, Final

from sembench.engine_events.dialects import DIALECTS, Dialect, LineResult
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
    read_line, results = _reader_of(dialect), Counter[LineResult]()
    dialect.begin(tally)
    for line in lines:
        tally.line += 1
        results[read_line(line, tally)] += 1
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


def _reader_of(dialect: Dialect) -> Callable[[str, Tally], LineResult]:
    """The dialect's ``read_line``. The former name ``hear`` is accepted for one release."""
    former: Callable[[str, Tally], LineResult] | None = getattr(dialect, "hear", None)
    if former is None or hasattr(dialect, "read_line"):
        return dialect.read_line
    warnings.warn(f"{type(dialect).__name__}.hear() is now called read_line()", DeprecationWarning, stacklevel=3)
    return former


def lines_of(stream: BinaryIO) -> Iterator[str]:
    """Lines of a log of any size. Invalid UTF-8 is replaced; a line is cut after ``MAX_LINE_BYTES``."""
    while line := stream.readline(MAX_LINE_BYTES):
        rest = line
        while rest and not rest.endswith(b"\n"):
            rest = stream.readline(MAX_LINE_BYTES)
        yield line.decode("utf-8", errors="replace")
