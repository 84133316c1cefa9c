"""What the two halves exchange each engine step: commands to the workers, a report back. Plain, pickled values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray
from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorHandshakeMetadata,
    KVConnectorMetadata,
    KVConnectorWorkerMetadata,
)

from semblend.contract import Run, TokenRange
from semblend.plan.reuse_cost import Timing, Work
from semblend.plan.selection import Selection

if TYPE_CHECKING:
    from semblend.fleet.donor_object import RowShape

ANOTHER_RANK: Final = "write: another rank could not write the runs"
MAX_FETCHES: Final = 8  # donors on their way from the fleet's store; further ones are left out
READERS: Final = 2  # threads that fetch them


@dataclass(frozen=True, slots=True)
class Recompute:
    """Recompute some of the loaded positions. ``question_ids`` follow the claim; ``block_ids`` hold both."""

    selection: Selection
    block_ids: tuple[int, ...]
    question_ids: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class LoadCommand:
    """Fill positions ``start <= i < end`` of a request: ``runs`` from donors, ``compute`` by the sparse forward.

    ``claim_ids`` are the token ids of all these positions: what cannot be loaded is computed. ``broken`` says why
    nothing is to be loaded. ``verified`` are the verification positions, compared with the model before the KV is used.
    ``cached``: for each run the engine's blocks that hold its donor's KV, from the block of ``donor_start`` on. What
    they do not reach comes from the store; empty: everything does.
    """

    request_id: str
    block_ids: tuple[int, ...]
    start: int
    end: int
    runs: tuple[Run, ...]
    compute: tuple[TokenRange, ...]
    claim_ids: NDArray[np.int64]
    broken: str = ""
    recompute: Recompute | None = None
    verified: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    cached: tuple[tuple[int, ...], ...] = ()

    def ids_of(self, ranges: Sequence[TokenRange]) -> NDArray[np.int64]:
        """Token ids at these ranges of the claim, one after another."""
        parts = [self.claim_ids[part.start - self.start : part.end - self.start] for part in ranges]
        return np.concatenate([np.empty(0, np.int64), *parts])


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


@dataclass(frozen=True, slots=True)
class RepairCommand:
    """Compute ``token_ids`` from position ``start`` on exactly, in the blocks of a finished request."""

    number: int  # of the repair: request ids come back
    request_id: str
    block_ids: tuple[int, ...]
    start: int
    token_ids: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class FetchCommand:
    """Fetch the donor ``fleet_id`` of another replica, of ``tokens`` tokens, and store it as ``donor_id``.

    ``identity`` is that of its space. ``ranges``: of its tokens, in whole pages; empty: all of them.
    """

    donor_id: str
    fleet_id: str
    identity: str
    tokens: int
    ranges: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class FetchReport:
    """A fetch that is done. ``outcome`` is ``fetched`` if the donor is stored; ``detail`` says why it is not."""

    outcome: str
    detail: str = ""
    read_bytes: int = 0  # from the fleet's store
    read_ms: float = 0.0
    writer: str = ""  # whom the donor names as its writer


@dataclass(frozen=True, slots=True)
class AuditCommand:
    """Compute ``token_ids`` of the fetched donor ``donor_id``, from ``start`` on, in blocks of a finished request.

    ``ranges``: with the last slice, the tokens whose rows are to be compared with the donor's.
    """

    request_id: str
    donor_id: str
    block_ids: tuple[int, ...]
    start: int
    token_ids: NDArray[np.int64]
    ranges: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class PublishCommand:
    """Hand the donor ``donor_id``, which this step's captures complete, to the fleet."""

    donor_id: str
    identity: str
    token_ids: NDArray[np.uint32]


@dataclass(slots=True)
class StepCommands(KVConnectorMetadata):
    """One step's work: loads, the isolated prefill and the repair, the engine's forward pass, drops, captures, what is
    exchanged with the fleet.

    So no load finds its donor gone, and what is copied was computed before. ``frees_captured``: blocks that a capture
    may still read were freed and can be overwritten from this step on.
    """

    loads: list[LoadCommand] = field(default_factory=list)
    captures: list[CaptureCommand] = field(default_factory=list)
    drops: list[str] = field(default_factory=list)
    releases: list[str] = field(default_factory=list)
    prefill: PrefillCommand | None = None
    frees_captured: bool = False
    repair: RepairCommand | None = None
    fetches: list[FetchCommand] = field(default_factory=list)
    publications: list[PublishCommand] = field(default_factory=list)
    timed: Work | None = None  # of the forward pass, if the workers are to time it
    audit: AuditCommand | None = None
    rests: bool = False  # there is nothing to do until a fetch is done


@dataclass(frozen=True, slots=True)
class LoadReport:
    """A claim whose positions are all in the cache, and the times; ``select_ms`` is a part of ``compute_ms``.

    ``fault`` says why nothing of it was loaded: then every position was computed.
    """

    donor_ids: tuple[str, ...]
    runs: int
    reused_tokens: int
    computed_tokens: int
    load_ms: float
    compute_ms: float
    select_ms: float = 0.0
    selected_by: str | None = None
    groups: int = 0
    fault: str = ""


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
    repaired: dict[int, int] = field(default_factory=dict)  # tokens of this step's slice, by the repair's number
    repair_ms: float = 0.0
    repair_faults: dict[int, str] = field(default_factory=dict)
    fetched: dict[str, FetchReport] = field(default_factory=dict)
    timed: Timing | None = None  # of the forward pass
    audited: dict[str, float | None] = field(default_factory=dict)  # how far donors are off; None: not computed

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
            self.repaired | other.repaired,
            max(self.repair_ms, other.repair_ms),
            self.repair_faults | other.repair_faults,
            self.fetched | other.fetched,
            max(filter(None, (self.timed, other.timed)), key=itemgetter(1), default=None),
            self.audited | other.audited,
        )

    @property
    def is_empty(self) -> bool:
        copied = self.stored or self.capture_faults or self.captured_tokens
        computed = self.prefilled_tokens or self.prefill_faults or self.repaired or self.repair_faults
        exchanged = self.fetched or self.timed or self.audited
        return not (self.loaded or self.load_faults or copied or computed or exchanged)


def _slowest(one: LoadReport, other: LoadReport) -> LoadReport:
    return replace(
        one,
        load_ms=max(one.load_ms, other.load_ms),
        compute_ms=max(one.compute_ms, other.compute_ms),
        fault=other.fault if one.fault == ANOTHER_RANK else one.fault,
    )


@dataclass(frozen=True, slots=True)
class Readiness(KVConnectorHandshakeMetadata):
    """The result of a worker's start-up self-test. An empty ``fault`` means that it can serve.

    ``device`` and ``backend`` are the engine's names of the GPU and of its attention. ``fleet_shape``: the worker can
    exchange donors of this shape with other replicas. ``probe``: what forward passes took.
    """

    fault: str
    sparse_forward: bool
    layout_digest: str
    bytes_per_token: int
    device: str = ""
    backend: str = ""
    fleet_shape: RowShape | None = None
    probe: tuple[Timing, ...] = ()
