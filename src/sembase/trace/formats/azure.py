"""Azure LLM inference arrivals (``TIMESTAMP,ContextTokens,GeneratedTokens``). They have no content: it is generated.

The content is seeded and documented in docs/guides/traces.md: some requests continue an earlier conversation, whose
whole prompt and answer become their prefix, so that ``prefix_share`` of all prompt tokens repeats an earlier prefix.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from sembase.errors import ConfigurationError, ContractError
from sembase.settings import read_options, setting
from sembase.trace.columns import BlockTrace
from sembase.trace.files import iter_lines, trace_name
from sembase.trace.formats.interface import Options, TraceFormat
from sembase.trace.formats.invented_sessions import InventedSessions
from sembase.trace.record import TraceBlock, TraceRecord
from sembase.trace.rows import TraceRows
from sembase.values import fraction, positive, whole

_HEADER: Final = b"TIMESTAMP,ContextTokens,GeneratedTokens"
TOLERANCE: Final = 0.01


@dataclass(frozen=True, slots=True)
class AzureOptions:
    prefix_share: float = setting(0.4, fraction, "fraction of prompt tokens that repeat an earlier prefix")
    block_tokens: int = setting(16, positive, "tokens per block of generated content")
    seed: int = setting(0, whole(None), "seed of the generated content")


@dataclass(frozen=True, slots=True)
class Arrival:
    at_ms: float
    prompt_tokens: int
    output_tokens: int


def load(path: Path, given: Options) -> BlockTrace:
    options = read_options(AzureOptions, given, "trace format 'azure'")
    invented = InventedSessions(options.prefix_share, options.block_tokens, options.seed)
    rows = TraceRows()
    start_ms: float | None = None
    for arrival in _iter_arrivals(path):
        start_ms = arrival.at_ms if start_ms is None else start_ms
        drawn = invented.next_prompt(arrival.prompt_tokens, arrival.output_tokens)
        rows.add(
            drawn.keys,
            drawn.tokens,
            arrival_ms=arrival.at_ms - start_ms,
            session=drawn.session,
            output_tokens=arrival.output_tokens,
        )
    if start_ms is not None and abs(invented.achieved_share - options.prefix_share) > TOLERANCE:
        raise ConfigurationError(
            f"azure: the lengths in {path.name} allow a prefix share of {invented.achieved_share:.3f}, "
            f"not {options.prefix_share:g}; set prefix_share to that or less"
        )
    name = f"{trace_name(path)}_share{options.prefix_share:g}_seed{options.seed}"
    return rows.take(name, block_tokens=options.block_tokens)


def records(path: Path) -> Iterator[TraceRecord]:
    """Arrivals and lengths as they are, one block per prompt: nothing is generated, and no reuse is visible."""
    for number, arrival in enumerate(_iter_arrivals(path), start=1):
        block = TraceBlock("other", arrival.prompt_tokens, block_id=str(number))
        yield TraceRecord(
            f"row-{number}", arrival.at_ms, (block,), output_tokens=arrival.output_tokens, visible_reuse="none"
        )


def _iter_arrivals(path: Path) -> Iterator[Arrival]:
    for number, line in iter_lines(path):
        text = line.strip()
        if number == 1 and text.lstrip(b"\xef\xbb\xbf") == _HEADER:
            continue
        cells = text.split(b",")
        try:
            stamp, prompt, output = cells[0].decode().removesuffix("+00:00"), int(cells[1]), int(cells[2])
            seconds, _, fraction = stamp.partition(".")
            at_ms = (
                datetime.fromisoformat(seconds + "+00:00").timestamp() * 1000.0 + float(f"0.{fraction or 0}") * 1000.0
            )
        except (ValueError, IndexError):
            raise ContractError(
                f"{path.name} line {number}: expected TIMESTAMP,ContextTokens,GeneratedTokens"
            ) from None
        if len(cells) != 3 or not 0 < prompt < 2**31 or not 0 <= output < 2**31:
            raise ContractError(f"{path.name} line {number}: lengths must be positive whole numbers")
        yield Arrival(at_ms, prompt, output)


FORMAT = TraceFormat(
    name="azure",
    summary="Azure LLM arrivals (TIMESTAMP,ContextTokens,GeneratedTokens) with generated content (prefix_share)",
    looks_like=lambda head: head.lstrip(b"\xef\xbb\xbf").startswith(_HEADER),
    load=load,
    records=records,
)
