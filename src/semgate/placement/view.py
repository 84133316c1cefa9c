"""The immutable inputs of one decision: what is known of the request and of every replica at that moment."""

from __future__ import annotations

import struct
from dataclasses import KW_ONLY, dataclass, field
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

Keys = NDArray[np.uint64]
BySlot = NDArray[np.int32]
Floats = NDArray[np.float64]
ReplicaState = Literal["ready", "half_open", "unhealthy", "draining", "open"]
NO_KEYS: Final[Keys] = np.zeros(0, dtype=np.uint64)
ROW_NUMBERS: Final = 5
_ROW: Final = struct.Struct(f"={ROW_NUMBERS}d")


@dataclass(frozen=True, slots=True)
class ReplicaView:
    """One replica now. ``slot`` is its number in the indexes; ``in_flight`` and ``queued_prefill_tokens`` include what
    others sent there, where the engine reports its load. The latter have not given a first token; of these
    ``head_prefill_tokens`` are our oldest request's, at the front since ``head_since_s`` (the Placer's clock), so that
    progress can be estimated without a report of the engine. ``trial_due``: its half-open breaker needs one request to
    decide. ``row`` is its numbers packed once, since a view serves many decisions."""

    name: str
    slot: int
    state: ReplicaState = "ready"
    in_flight: int = 0
    queued_prefill_tokens: int = 0
    _: KW_ONLY
    trial_due: bool = False
    head_prefill_tokens: int = 0
    head_since_s: float = 0.0
    row: bytes = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        numbers = (self.slot, self.queued_prefill_tokens, self.in_flight, self.head_prefill_tokens, self.head_since_s)
        object.__setattr__(self, "row", _ROW.pack(*numbers))


@dataclass(frozen=True, slots=True)
class Content:
    """One labelled block of text: a keyed digest of it, the index of its label in ``sembase.labels``, its size."""

    key: int
    label: int
    tokens: int


@dataclass(frozen=True, slots=True)
class PlacementRequest:
    """Evidence arrays are indexed by slot; a slot beyond their end has none, and None means not queried.

    ``exact_blocks``: leading blocks the engines announced (``BlockIndex.longest``). ``claimed_blocks``: the same with
    replicas that are not believed, to compare with what engines report; None if they may ignore their cache.
    ``expected_blocks``: leading
    blocks by routing history (the approximate index). ``donor_tokens``: tokens donors cover beyond the exact prefix.
    ``fetchable_tokens``: tokens covered by donors of any replica that are in a store which all of them read.
    ``keys``: chained block keys, their root already holding model, tenant salt and LoRA. ``tried``: replicas that have
    failed this request. ``collect_us``: time for keys and look-ups. ``evidence_error``: why evidence could not be
    collected. ``own_evidence``: all evidence comes from the tenant's own requests, so that it may be reported to them.
    """

    prompt_tokens: int
    block_tokens: int = 16
    _: KW_ONLY
    keys: Keys = field(default_factory=lambda: NO_KEYS)
    exact_blocks: BySlot | None = None
    claimed_blocks: BySlot | None = None
    expected_blocks: BySlot | None = None
    donor_tokens: BySlot | None = None
    fetchable_tokens: BySlot | None = None
    content: tuple[Content, ...] = ()
    tenant: str = "unknown"
    session: str | None = None
    tried: frozenset[str] = frozenset()
    collect_us: float = 0.0
    evidence_error: str | None = None
    own_evidence: bool = True


@dataclass(frozen=True, slots=True)
class Observed:
    """One finished prefill. ``tokens_ahead``: prefill tokens queued on the replica when the request joined,
    of them ``head_tokens`` at the front for ``head_age_ms``. ``cached_tokens``: as the engine reported, None if it
    does not report."""

    prompt_tokens: int
    tokens_ahead: int
    cached_tokens: int | None
    ttft_ms: float
    _: KW_ONLY
    head_tokens: int = 0
    head_age_ms: float = 0.0
