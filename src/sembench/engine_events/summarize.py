"""Lines of a log in one dialect -> its summary. No line stops it: what cannot be read is counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import BinaryIO, Final

from sembench.engine_events.dialects import DIALECTS, Heard
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
    heard: Counter[Heard] = Counter()
    dialect.begin(tally)
    for line in lines:
        tally.line += 1
        heard[dialect.hear(line, tally)] += 1
        if any(mark in line for mark in _ERRORS):
            tally.error(line)
        if any(mark in line for mark in _WARNINGS):
            tally.warn(line)
    dialect.finish(tally)
    return tally.finish(
        engine,
        lines=tally.line,
        understood=heard[Heard.UNDERSTOOD],
        other=heard[Heard.OTHER],
        damaged=heard[Heard.DAMAGED],
    )


def lines_of(stream: BinaryIO) -> Iterator[str]:
    """Lines of a log of any size. Bytes that are no text become marks; of an endless line only the beginning counts."""
    while line := stream.readline(MAX_LINE_BYTES):
        rest = line
        while rest and not rest.endswith(b"\n"):
            rest = stream.readline(MAX_LINE_BYTES)
        yield line.decode("utf-8", errors="replace")
