"""Azure LLM inference arrivals (``TIMESTAMP,ContextTokens,GeneratedTokens``), which hold no content: it is drawn.

Content model, seeded and documented in docs/guides/traces.md: some requests continue an earlier conversation, whose
whole prompt and answer become their prefix, so that ``prefix_share`` of all prompt tokens repeats an earlier prefix.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

import numpy as np

from sembase.errors import ConfigurationError, ContractError
from sembase.trace.columns import BlockTrace, TreeInterner, block_trace
from sembase.trace.formats.interface import Options, TraceFormat, parse_options
from sembase.trace.formats.invented_sessions import InventedSessions
from sembase.trace.grow import Column
from sembase.trace.lines import iter_lines
from sembase.trace.naming import trace_name

_HEADER: Final = b"TIMESTAMP,ContextTokens,GeneratedTokens"
TOLERANCE: Final = 0.01


@dataclass(frozen=True, slots=True)
class AzureOptions:
    prefix_share: float = 0.4
    block_tokens: int = 16
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Arrival:
    at_ms: float
    prompt_tokens: int
    output_tokens: int


def load(path: Path, given: Options) -> BlockTrace:
    options = parse_options(AzureOptions, given, "azure")
    if not 0.0 <= options.prefix_share < 1.0 or options.block_tokens < 1:
        raise ConfigurationError("azure: prefix_share must be from 0 to below 1, block_tokens at least 1")
    invented = InventedSessions(options.prefix_share, options.block_tokens, options.seed)
    interner = TreeInterner()
    nodes, offsets, session = Column(np.int32), Column(np.int64), Column(np.int32)
    arrivals = list(_iter_arrivals(path))
    if not arrivals:
        raise ContractError(f"{path.name}: holds no requests")
    offsets.append(0)
    for arrival in arrivals:
        drawn = invented.next_prompt(arrival.prompt_tokens, arrival.output_tokens)
        nodes.extend(interner.add(-1, drawn.keys, drawn.tokens))
        offsets.append(len(nodes))
        session.append(drawn.session)
    if abs(invented.achieved_share - options.prefix_share) > TOLERANCE:
        raise ConfigurationError(
            f"azure: the lengths in {path.name} allow a prefix share of {invented.achieved_share:.3f}, "
            f"not {options.prefix_share:g}; ask for that or less"
        )
    start_ms = arrivals[0].at_ms
    return block_trace(
        f"{trace_name(path)}_share{options.prefix_share:g}_seed{options.seed}",
        offsets.array(),
        nodes.array(),
        interner,
        block_tokens=options.block_tokens,
        arrival_ms=np.array([arrival.at_ms - start_ms for arrival in arrivals]),
        session=session.array(),
        output_tokens=np.array([arrival.output_tokens for arrival in arrivals], np.int32),
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
    summary="Azure LLM arrivals (TIMESTAMP,ContextTokens,GeneratedTokens) with drawn content of a given prefix share",
    looks_like=lambda head: head.lstrip(b"\xef\xbb\xbf").startswith(_HEADER),
    load=load,
)
