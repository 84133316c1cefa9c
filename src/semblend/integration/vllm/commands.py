"""What the two halves exchange each engine step: commands to the workers, a report back. Plain, pickled values."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray
from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorHandshakeMetadata,
    KVConnectorMetadata,
    KVConnectorWorkerMetadata,
)

from semblend.contract import Run, TokenRange
from semblend.plan.selection import Selection


@dataclass(frozen=True, slots=True)
class Recompute:
    """Recompute some of the loaded positions.

    ``claim_ids`` are the ids of the whole claim, ``question_ids`` those after it; ``block_ids`` hold both.
    """

    selection: Selection
    block_ids: tuple[int, ...]
    claim_ids: NDArray[np.int64]
    question_ids: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class LoadCommand:
    """Fill positions ``start <= i < end`` of a request: ``runs`` from donors, ``compute`` by the sparse forward.

    ``token_ids`` are the ids at the computed positions, in order. ``broken`` says why the claim cannot be kept: the
    workers then report the blocks as invalid and the engine computes them itself. ``verified`` are the verification
    positions, compared with the model before the KV is used; ``verified_ids`` are their token ids.
    """

    request_id: str
    block_ids: tuple[int, ...]
    start: int
    end: int
    runs: tuple[Run, ...]
    compute: tuple[TokenRange, ...]
    token_ids: NDArray[np.int64]
    broken: str = ""
    recompute: Recompute | None = None
    verified: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    verified_ids: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))


@dataclass(frozen=True, slots=True)
class CaptureCommand:
    """Copy ``tokens`` positions from ``start`` on, the first of them at the head of ``block_ids[0]``, into a donor.

    The first slice begins a donor of ``donor_tokens``, the one that fills it commits it. ``release``: the request is
    finished and its blocks wait for this copy only.
    """

    request_id: str
    donor_id: str
    donor_tokens: int
    start: int
    tokens: int
    block_ids: tuple[int, ...]
    release: bool = False

    @property
    def is_last(self) -> bool:
        return self.start + self.tokens == self.donor_tokens


@dataclass(frozen=True, slots=True)
class PrefillCommand:
    """Prefill ``token_ids`` in isolation from position ``start`` on, in blocks of a finished request."""

    request_id: str
    donor_id: str
    block_ids: tuple[int, ...]
    start: int
    token_ids: NDArray[np.int64]


@dataclass(slots=True)
class StepCommands(KVConnectorMetadata):
    """One step's work, in this order: loads and the isolated prefill, the engine's forward pass, drops, captures.

    So no load finds its donor gone, and what is copied was computed before.
    """

    loads: list[LoadCommand] = field(default_factory=list)
    captures: list[CaptureCommand] = field(default_factory=list)
    drops: list[str] = field(default_factory=list)
    releases: list[str] = field(default_factory=list)
    prefill: PrefillCommand | None = None


@dataclass(frozen=True, slots=True)
class LoadReport:
    """A confirmed load and its times; ``select_ms`` is a part of ``compute_ms``."""

    donor_ids: tuple[str, ...]
    runs: int
    reused_tokens: int
    computed_tokens: int
    load_ms: float
    compute_ms: float
    select_ms: float = 0.0
    selected_by: str | None = None
    groups: int = 0


@dataclass(slots=True)
class StepReport(KVConnectorWorkerMetadata):
    """What happened on one rank, or on all once aggregated. ``stored`` counts the ranks that committed a donor."""

    loaded: dict[str, LoadReport] = field(default_factory=dict)
    load_faults: dict[str, str] = field(default_factory=dict)
    stored: dict[str, int] = field(default_factory=dict)
    capture_faults: dict[str, str] = field(default_factory=dict)
    captured_tokens: int = 0
    capture_ms: float = 0.0
    prefilled_tokens: int = 0
    prefill_ms: float = 0.0
    prefill_faults: dict[str, str] = field(default_factory=dict)

    def aggregate(self, other: KVConnectorWorkerMetadata) -> StepReport:
        if not isinstance(other, StepReport):
            raise TypeError(f"report of another connector: {type(other).__name__}")
        loaded = dict(self.loaded)
        for request_id, report in other.loaded.items():
            mine = loaded.get(request_id)
            loaded[request_id] = report if mine is None else _slowest(mine, report)
        stored = dict(self.stored)
        for donor_id, ranks in other.stored.items():
            stored[donor_id] = stored.get(donor_id, 0) + ranks
        return StepReport(
            loaded,
            {**self.load_faults, **other.load_faults},
            stored,
            {**self.capture_faults, **other.capture_faults},
            max(self.captured_tokens, other.captured_tokens),
            max(self.capture_ms, other.capture_ms),
            max(self.prefilled_tokens, other.prefilled_tokens),
            max(self.prefill_ms, other.prefill_ms),
            {**self.prefill_faults, **other.prefill_faults},
        )

    @property
    def is_empty(self) -> bool:
        copied = self.stored or self.capture_faults or self.captured_tokens
        return not (self.loaded or self.load_faults or copied or self.prefilled_tokens or self.prefill_faults)


def _slowest(one: LoadReport, other: LoadReport) -> LoadReport:
    return replace(one, load_ms=max(one.load_ms, other.load_ms), compute_ms=max(one.compute_ms, other.compute_ms))


@dataclass(frozen=True, slots=True)
class Readiness(KVConnectorHandshakeMetadata):
    """The result of a worker's start-up self-test. An empty ``fault`` means that it can serve."""

    fault: str
    sparse_forward: bool
    layout_digest: str
    bytes_per_token: int
