"""Arrival times, lengths and repeated content of a recorded trace, in any format that ``sembase.trace`` reads.

Times are seconds since the first request of the trace.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from sembase.errors import ConfigurationError, SemBlendError

# Azure traces have no content: one block per prompt, none of them repeated. Ids of Mooncake need not be chained here.
_OPTIONS: Final[Mapping[str, Mapping[str, object]]] = {
    "azure": {"prefix_share": 0.0, "block_tokens": 1 << 30},
    "mooncake": {"unchained": "by_path"},
}


@dataclass(frozen=True, slots=True)
class TraceEntry:
    """``blocks`` are (id, tokens) in the order of the prompt; equal ids are equal content."""

    at_s: float
    prompt_tokens: int
    output_tokens: int
    blocks: tuple[tuple[int, int], ...] = ()


def read_trace(path: Path) -> list[TraceEntry]:
    """In order of time. A file without times or lengths is refused in one line that names the formats."""
    from sembase.trace.formats import FORMATS  # noqa: PLC0415  (its compiled loops are needed for --trace only)
    from sembase.trace.load import load_trace, sniff_format  # noqa: PLC0415

    formats = f"run-load reads {', '.join(FORMATS.names())}, with a time and an output length for every request"
    try:
        name = sniff_format(path)
    except (SemBlendError, ValueError):
        raise ConfigurationError(f"--trace {path}: unknown trace format; {formats}") from None
    try:
        trace = load_trace(path, name, _OPTIONS.get(name, {}))
    except (SemBlendError, EOFError, ValueError) as error:
        raise ConfigurationError(f"--trace {path}: not a valid '{name}' trace: {error}; {formats}") from None
    for what, is_missing in (
        ("time", np.isnan(trace.arrival_ms)),
        ("output length", trace.output_tokens < 0),
    ):
        if is_missing.any():
            number = int(np.argmax(is_missing)) + 1
            raise ConfigurationError(f"--trace {path}: request {number} ('{name}') has no {what}; {formats}")
    ids, tokens = trace.content[trace.nodes].tolist(), trace.node_tokens[trace.nodes].tolist()
    start_ms = float(trace.arrival_ms.min())
    entries = []
    for number in np.argsort(trace.arrival_ms, kind="stable").tolist():
        first, end = int(trace.offsets[number]), int(trace.offsets[number + 1])
        blocks = tuple(zip(ids[first:end], tokens[first:end], strict=True))
        at_s = (float(trace.arrival_ms[number]) - start_ms) / 1000.0
        prompt_tokens, output_tokens = sum(tokens[first:end]), int(trace.output_tokens[number])
        # A request without a token on either side cannot be sent, but it was a request.
        entries.append(TraceEntry(at_s, max(1, prompt_tokens), max(1, output_tokens), blocks))
    return entries
