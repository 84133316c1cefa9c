"""What a workload is made of: its published shape, the prompts it draws, and what comes out."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from semantic_kv.workload.texts import Writer
from sembase.trace.columns import BlockTrace
from sembase.trace.record import TraceRecord

Part = tuple[str, str]  # label, text


@dataclass(frozen=True, slots=True)
class Plan:
    """What a generator may use. All chance comes from ``random`` and ``writer``, which share the seed."""

    sessions: int
    requests_per_session: int
    random: random.Random
    writer: Writer


@dataclass(frozen=True, slots=True)
class DrawnRequest:
    """A prompt as labelled parts, first part first; requests are put in order of time afterwards."""

    session: int
    at_ms: float
    parts: tuple[Part, ...]
    output_tokens: int


@dataclass(frozen=True, slots=True)
class WorkloadKind:
    """``capacity_tokens`` is the cache the workload is meant to press against."""

    name: str
    summary: str
    seed: int
    sessions: int
    requests_per_session: int
    capacity_tokens: int
    draw: Callable[[Plan], Iterator[DrawnRequest]]


@dataclass(frozen=True, slots=True)
class Workload:
    """The requests twice: as records with their text, and as the columns the simulator reads."""

    name: str
    seed: int
    capacity_tokens: int
    records: tuple[TraceRecord, ...]
    trace: BlockTrace
