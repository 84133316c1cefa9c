"""A coverage-guided fuzzer of the log readers, run as a program of its own (atheris ends the process it runs in).

The first byte of an input chooses the dialect, the rest is the log. Options are libFuzzer's.
"""

from __future__ import annotations

import io
import json
import sys

import atheris  # type: ignore[import-untyped,import-not-found,unused-ignore]

with atheris.instrument_imports(include=["sembench.engine_events"]):
    from sembench.engine_events.dialects import DIALECTS
    from sembench.engine_events.summarize import lines_of, summarize

    for name in DIALECTS:
        DIALECTS.get(name)

ENGINES = sorted(DIALECTS)


def read_log(content: bytes) -> None:
    if not content:
        return
    summary = summarize(ENGINES[content[0] % len(ENGINES)], lines_of(io.BytesIO(content[1:])))
    read = summary.events[0]
    if read["lines"] != read["understood"] + read["other"] + read["damaged"]:
        raise AssertionError(f"lines were lost: {read}")
    json.dumps(summary.to_json(), allow_nan=False)


if __name__ == "__main__":
    atheris.Setup(sys.argv, read_log)
    atheris.Fuzz()
