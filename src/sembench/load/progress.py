"""Progress of a load on stderr, with percentiles of the latest answers: a line every few seconds."""

from __future__ import annotations

import asyncio
import sys
from typing import Final

from sembase.streams import write_err
from sembench.load.collect import Collector
from sembench.load.percentiles import summarize, value_of
from sembench.load.sender import Sender

_SECONDS_BETWEEN_LINES: Final = 5.0
_SECONDS_ON_A_TERMINAL: Final = 1.0


async def report_progress(sender: Sender, collector: Collector) -> None:
    """Until cancelled. On a terminal one line is written over and over."""
    terminal = sys.stderr.isatty()
    while True:
        await asyncio.sleep(_SECONDS_ON_A_TERMINAL if terminal else _SECONDS_BETWEEN_LINES)
        line = progress_line(sender, collector)
        write_err(f"\r\x1b[K{line}" if terminal else f"{line}\n")


def end_progress() -> None:
    if sys.stderr.isatty():
        write_err("\n")


def progress_line(sender: Sender, collector: Collector) -> str:
    elapsed_s, done = sender.elapsed_s(), len(collector.records)
    parts = [f"load: {elapsed_s:.0f} s", f"{done} done", f"{sender.in_flight} in flight"]
    if collector.failed:
        parts.append(f"{collector.failed} FAILED")
    parts.append(f"{done / elapsed_s:.1f} req/s" if elapsed_s > 0 else "")
    recent = list(collector.recent)
    for title, values in (
        ("TTFT", [r.ttft_ms for r in recent if r.ok and r.ttft_ms is not None]),
        ("TPOT", [r.tpot_ms for r in recent if r.ok and r.tpot_ms is not None]),
        ("late", [r.lateness_ms for r in recent if r.lateness_ms is not None]),
    ):
        summary = summarize(values)
        if summary is not None:
            parts.append(f"{title} p50 {value_of(summary, 50):.1f} p99 {value_of(summary, 99):.1f} ms")
    return ", ".join(filter(None, parts))
