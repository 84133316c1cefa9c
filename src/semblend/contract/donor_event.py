"""``semantic-kv-events``: an adapter's announcements of its donors and gates. Records, and their form on the wire.

A donor is identified by keyed digests alone: no token, no text and no plain salt leaves the engine. Publishers
(``semblend.integration.announce``) and routers wrap the plain values in msgpack.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, get_args

from msgspec import Meta

from sembase.records import Count, Record, as_plain, record_of

TOPIC: Final = "semantic-kv-events"
VERSION: Final = 1
KEY_BYTES: Final = 16  # minimum length of the key that publishers and routers share
MAX_ANCHORS: Final = 1 << 17  # of one donor: over two million tokens
ANCHOR_BYTES: Final = 8
POSITION_BYTES: Final = 4
MAX_NAME_CHARACTERS: Final = 256
MAX_GATE: Final = 1 << 40

Tier = Literal["device", "host", "storage"]
Name = Annotated[str, Meta(max_length=MAX_NAME_CHARACTERS)]
Gate = Annotated[int, Meta(ge=0, le=MAX_GATE)] | Annotated[float, Meta(ge=0, le=MAX_GATE)]


class DonorEventError(ValueError):
    """A message does not follow this contract."""


class _Event(Record, frozen=True, tag_field="type"):
    """One of the kinds below."""


class DonorAnnounced(_Event, frozen=True, tag="donor_registered"):
    """A donor can be loaded from now on. ``anchors`` are keyed 64-bit values, ``positions`` are theirs in it.

    Both are packed little-endian, 8 and 4 bytes each, in ascending order of position: 0.7 bytes per donor token.
    ``gram`` is the number of tokens each anchor covers.
    """

    donor_id: Name
    namespace: Name
    tokens: Count
    gram: Annotated[int, Meta(ge=1)]
    anchors: bytes
    positions: bytes
    tier: Tier = "host"

    def __post_init__(self) -> None:
        count, odd = divmod(len(self.anchors), ANCHOR_BYTES)
        if odd or len(self.positions) != count * POSITION_BYTES:
            raise DonorEventError(f"donor {self.donor_id!r}: anchors and positions differ in number")
        if count > MAX_ANCHORS:
            raise DonorEventError(f"donor {self.donor_id!r}: {count} anchors exceed the maximum of {MAX_ANCHORS}")


class DonorWithdrawn(_Event, frozen=True, tag="donor_evicted"):
    """A donor can no longer be loaded. An unknown donor is not an error: the message may come twice."""

    donor_id: Name
    reason: Name


class DonorsPurged(_Event, frozen=True, tag="donors_purged"):
    """Every donor of ``namespace`` is gone; with None, every donor of this publisher."""

    namespace: Name | None
    reason: Name


class DonorRelocated(_Event, frozen=True, tag="donor_relocated"):
    """The donor is in another tier. One that changes workers is withdrawn and announced again.

    ``storage`` is a store that other replicas read as well: they can fetch the donor.
    """

    donor_id: Name
    tier: Tier


class GenerationReset(_Event, frozen=True, tag="provider_generation_reset"):
    """Forget everything this publisher announced before, its gates included: it restarted, or repeats its state."""

    generation: Count


class GatesAnnounced(_Event, frozen=True, tag="provider_gates"):
    """The gates this publisher's connector applies to every plan, by the field names of ``semblend.plan.gates.Gates``.

    Sent after each ``GenerationReset``. Subscribers older than this kind skip it as unknown; a subscriber ignores gate
    names it does not know and takes its own default for names that are missing.
    """

    gates: Mapping[str, Gate]


DonorEvent = DonorAnnounced | DonorWithdrawn | DonorsPurged | DonorRelocated | GenerationReset | GatesAnnounced
_EVENT: Final[Any] = DonorEvent
_KINDS: Final = frozenset(kind.__struct_config__.tag for kind in get_args(DonorEvent))


class DonorBatch(Record, frozen=True):
    """One message. ``unknown`` counts events of kinds this version does not know."""

    timestamp_s: float
    events: tuple[DonorEvent, ...]
    rank: int = 0
    unknown: int = 0


def encode_batch(batch: DonorBatch) -> list[Any]:
    """Plain values in the shape of the engines' own events: ``[timestamp, [event, ...], rank]``."""
    return [batch.timestamp_s, [_encode(event) for event in batch.events], batch.rank]


def decode_batch(message: Any) -> DonorBatch:
    """The batch, or ``DonorEventError``. Kinds of a later version are counted and skipped."""
    match message:
        case [int() | float() as timestamp, [*entries], int() as rank]:
            found = [_decode(entry) for entry in entries]
            known = tuple(event for event in found if event is not None)
            return DonorBatch(float(timestamp), known, rank, len(found) - len(known))
        case _:
            raise DonorEventError("not a batch of donor events: [timestamp, [event, ...], rank]")


def _encode(event: DonorEvent) -> dict[str, Any]:
    return {**as_plain(event), "v": VERSION}


def _decode(entry: Any) -> DonorEvent | None:
    if not isinstance(entry, Mapping):
        raise DonorEventError(f"an event must be a map, not {type(entry).__name__}")
    kind = entry.get("type")
    if not isinstance(kind, str):
        raise DonorEventError("an event has no type")
    if entry.get("v") != VERSION or kind not in _KINDS:
        return None
    try:
        event: DonorEvent = record_of(_EVENT, {name: value for name, value in entry.items() if name != "v"})
    except ValueError as error:
        raise DonorEventError(f"{kind}: {error}") from None
    return event


def replay_endpoint(endpoint: str, rank: int = 0) -> str:
    """Where missed announcements of ``endpoint`` are requested: the port above, or the socket file beside it."""
    return _shifted(endpoint, 2 * rank + 1, ".replay")


def endpoint_of_rank(endpoint: str, rank: int) -> str:
    """Ranks of one engine take two ports each."""
    return _shifted(endpoint, 2 * rank, "")


def _shifted(endpoint: str, ports: int, suffix: str) -> str:
    head, _, port = endpoint.rpartition(":")
    if endpoint.startswith("tcp://") and port.isdecimal():
        return f"{head}:{int(port) + ports}"
    rank = f".{ports // 2}" if ports > 1 else ""
    return f"{endpoint}{rank}{suffix}"


def read_key(path: Path) -> bytes:
    """The key that engines and routers share. White space at its ends, as editors leave it, is removed."""
    try:
        key = path.read_bytes().strip()
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ValueError(f"{path}: the key cannot be read: {reason}") from None
    if len(key) < KEY_BYTES:
        raise ValueError(f"{path}: the key has {len(key)} bytes; minimum {KEY_BYTES}")
    return key


def tenant_of_salt(cache_salt: str | None) -> str | None:
    """A request's tenant as namespaces name it. None, for requests without a salt, is a tenant of its own."""
    if cache_salt is None:
        return None
    return "salt:" + hashlib.sha256(cache_salt.encode("utf-8", "surrogatepass")).hexdigest()


def namespace_digest(key: bytes, tenant: str | None, lora: str | None) -> str:
    """What donor and recipient must share besides the engine itself, readable only with ``key``.

    Model, layout and the rest of the engine's namespace are not included: a router compares one engine at a time.
    """
    parts = b"".join(_framed(part) for part in ("semblend:donors:v1", tenant, lora))
    return hmac.new(key, parts, hashlib.sha256).hexdigest()[:32]


def anchor_salts(key: bytes, namespace: str) -> tuple[int, int]:
    """Two 64-bit values that make the anchors of one namespace differ from those of any other."""
    digest = hmac.new(key, b"anchors" + _framed(namespace), hashlib.sha256).digest()
    return int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:16], "little")


def _framed(part: str | None) -> bytes:
    """Each part with its length first, and None distinct from "": different lists of parts never have equal bytes."""
    if part is None:
        return b"\xff" * 8
    data = part.encode("utf-8", "surrogatepass")
    return len(data).to_bytes(8, "big") + data
