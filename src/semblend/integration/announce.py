"""Announces donors to routers from a thread of its own: adapters report changes in constant time and continue.

Off unless the settings name an endpoint. Any fault here is contained and counted at the border; the engine never waits.
The thread keeps one announcement per living donor, about 0.7 bytes per token, so that a router that joins late, or
missed more than the replay buffer holds, can receive the whole state again.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from sembase.errors import ConfigurationError
from semblend.contract.donor_event import (
    MAX_ANCHORS,
    DonorAnnounced,
    DonorBatch,
    DonorEvent,
    DonorRelocated,
    DonorsPurged,
    DonorWithdrawn,
    GatesAnnounced,
    GenerationReset,
    Tier,
    anchor_salts,
    endpoint_of_rank,
    namespace_digest,
    read_key,
    replay_endpoint,
)
from semblend.fingerprint.anchors import GRAM, select_anchors, thin_periodic
from semblend.fingerprint.keyed import keyed_anchors

if TYPE_CHECKING:
    from semblend.integration.border import Border
    from semblend.plan.gates import Gates
    from semblend.settings import Settings

QUEUE_LIMIT: Final = 4096
BATCH_EVENTS: Final = 64
BATCH_BYTES: Final = 1 << 20  # of anchors; the largest donor has 1.5 MiB. Subscribers read messages of up to 16 MiB
TURN_S: Final = 0.1  # longest wait of a replay request while there is nothing to announce
REPEAT_EVERY_S: Final = 5.0
NAMESPACES_REMEMBERED: Final = 4096


def open_announcer(settings: Settings, border: Border, gates: Gates, rank: int = 0) -> DonorAnnouncer:
    """Bad settings raise ``ConfigurationError`` here; network faults are reported later, at the border.

    ``gates`` are those the connector applies. Routers predict reuse by them.
    """
    assert settings.donor_events_key_file is not None, "settings are checked"
    try:
        key = read_key(settings.donor_events_key_file)
    except ValueError as error:
        raise ConfigurationError(str(error)) from None
    endpoint, replay = endpoint_of_rank(settings.donor_events, rank), replay_endpoint(settings.donor_events, rank)
    from semblend.integration.donor_socket import DonorSocket  # noqa: PLC0415 - its packages are optional

    curve = None
    if settings.donor_events_curve_key_file is not None:
        from sembase.zmq_curve import open_curve_server  # noqa: PLC0415 - its packages are optional

        curve = open_curve_server(settings.donor_events_curve_key_file, settings.donor_events_curve_clients)
    open_socket = partial(DonorSocket, endpoint, replay, settings.donor_events_buffer, curve)
    return DonorAnnouncer(open_socket, key, border, rank, gates=gates)


class Announcer:
    """What adapters call on the scheduler's thread when a donor changes. This one, ``SILENT``, announces nothing."""

    def loadable(
        self, donor_id: str, tokens: NDArray[np.uint32], tenant: str | None, lora: str | None, tier: Tier = "host"
    ) -> None:
        pass

    def withdrawn(self, donor_id: str, reason: str) -> None:
        pass

    def relocated(self, donor_id: str, tier: Tier) -> None:
        pass

    def purged(self, reason: str) -> None:
        pass

    def close(self) -> None:
        pass


SILENT: Final = Announcer()


class BatchSocket(Protocol):
    def publish(self, batch: DonorBatch) -> None: ...
    def answer(self) -> bool: ...
    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class _Loadable:
    donor_id: str
    tokens: NDArray[np.uint32]
    tenant: str | None
    lora: str | None
    tier: Tier


class DonorAnnouncer(Announcer):
    """The methods are for the scheduler's thread and never block; ``lost`` counts changes that found the queue full.

    A lost change may have been a withdrawal, so the announcer then tells routers to forget this publisher's donors and
    announces new ones only. ``gates`` None announces no gates; subscribers then assume ``ADAPTER_GATES``.
    """

    def __init__(
        self,
        open_socket: Callable[[], BatchSocket],
        key: bytes,
        border: Border,
        rank: int = 0,
        *,
        gates: Gates | None = None,
    ) -> None:
        self.lost = 0
        self._open_socket = open_socket
        self._border = border
        self._rank = rank
        self._queue: queue.Queue[_Loadable | DonorEvent] = queue.Queue(QUEUE_LIMIT)
        self._has_lost = False
        self._is_disabled = False
        self._ending = threading.Event()
        self._state = _State(key, gates)
        self._thread = threading.Thread(target=self._work, name="semblend-announce", daemon=True)
        self._thread.start()

    def loadable(
        self, donor_id: str, tokens: NDArray[np.uint32], tenant: str | None, lora: str | None, tier: Tier = "host"
    ) -> None:
        self._enqueue(_Loadable(donor_id, tokens, tenant, lora, tier))

    def withdrawn(self, donor_id: str, reason: str) -> None:
        self._enqueue(DonorWithdrawn(donor_id, reason))

    def relocated(self, donor_id: str, tier: Tier) -> None:
        self._enqueue(DonorRelocated(donor_id, tier))

    def purged(self, reason: str) -> None:
        self._enqueue(DonorsPurged(None, reason))

    def close(self, patience_s: float = 2.0) -> None:
        """Announce that all donors are gone, and end the thread."""
        self.purged("shutdown")
        self._ending.set()
        self._thread.join(patience_s)

    def _enqueue(self, change: _Loadable | DonorEvent) -> None:
        if self._is_disabled:
            return
        try:
            self._queue.put_nowait(change)
        except queue.Full:
            self.lost += 1
            self._has_lost = True

    def _work(self) -> None:
        socket = self._border.call("announce", "", self._open_socket, None)
        if socket is None:
            self._is_disabled = True  # the border has reported why; no thread will empty the queue
            return
        self._border.call("announce", "", partial(self._publish, socket, self._state.reset()), None)
        repeated_s = 0.0
        while not (self._ending.is_set() and self._queue.empty()):
            changes = self._take()
            if not self._border.call("announce", "", partial(self._send, socket, changes), False):
                self._has_lost = True  # one of the changes may have been a withdrawal
            is_missed = self._border.call("announce", "", socket.answer, False)
            if is_missed and time.monotonic() - repeated_s >= REPEAT_EVERY_S:
                repeated_s = time.monotonic()
                self._border.call("announce", "", partial(self._publish, socket, self._state.events_of_all()), None)
        self._border.call("announce", "", socket.close, None)

    def _take(self) -> Sequence[_Loadable | DonorEvent]:
        """The next changes, at most a batch of them. After a loss the queue is dropped and routers must forget."""
        if self._has_lost:
            self._has_lost = False
            for _ in range(self._queue.qsize()):
                self._queue.get_nowait()
            return self._state.reset()
        changes: list[_Loadable | DonorEvent] = []
        try:
            changes.append(self._queue.get(timeout=TURN_S))
            while len(changes) < BATCH_EVENTS:
                changes.append(self._queue.get_nowait())
        except queue.Empty:
            pass
        return changes

    def _send(self, socket: BatchSocket, changes: Sequence[_Loadable | DonorEvent]) -> bool:
        self._publish(socket, self._state.events_of(changes))
        return True

    def _publish(self, socket: BatchSocket, events: Iterable[DonorEvent]) -> None:
        for part in _parts(events):
            socket.publish(DonorBatch(time.time(), part, self._rank))


def _parts(events: Iterable[DonorEvent]) -> Iterator[tuple[DonorEvent, ...]]:
    """As many events at a time as one message holds."""
    part: list[DonorEvent] = []
    size_bytes = 0
    for event in events:
        part.append(event)
        size_bytes += len(event.anchors) + len(event.positions) if isinstance(event, DonorAnnounced) else 0
        if len(part) == BATCH_EVENTS or size_bytes >= BATCH_BYTES:
            yield tuple(part)
            part, size_bytes = [], 0
    if part:
        yield tuple(part)


class _State:
    """What has been announced and still holds, by donor. Belongs to the announcer's thread."""

    def __init__(self, key: bytes, gates: Gates | None) -> None:
        self._living: dict[str, DonorAnnounced] = {}
        self._gates = [] if gates is None else [GatesAnnounced(asdict(gates))]
        self._digest = lru_cache(NAMESPACES_REMEMBERED)(partial(namespace_digest, key))
        self._salts = lru_cache(NAMESPACES_REMEMBERED)(partial(anchor_salts, key))

    def reset(self) -> list[DonorEvent]:
        """Events of a publisher without donors."""
        self._living.clear()
        return [GenerationReset(time.time_ns()), *self._gates]

    def events_of_all(self) -> list[DonorEvent]:
        return [GenerationReset(time.time_ns()), *self._gates, *self._living.values()]

    def events_of(self, changes: Iterable[_Loadable | DonorEvent]) -> Iterator[DonorEvent]:
        for change in changes:
            match change:
                case _Loadable():
                    yield self._announce(change)
                case DonorWithdrawn(donor_id=donor_id):
                    if self._living.pop(donor_id, None) is not None:
                        yield change
                case DonorRelocated(donor_id=donor_id, tier=tier):
                    if (donor := self._living.get(donor_id)) is not None:
                        self._living[donor_id] = replace(donor, tier=tier)
                        yield change
                case GatesAnnounced():
                    yield change
                case _:
                    self._living.clear()
                    yield change

    def _announce(self, donor: _Loadable) -> DonorAnnounced:
        namespace = self._digest(donor.tenant, donor.lora)
        positions, hashes = thin_periodic(select_anchors(donor.tokens))
        anchors = keyed_anchors(hashes[:MAX_ANCHORS], self._salts(namespace))
        announced = DonorAnnounced(
            donor.donor_id,
            namespace,
            len(donor.tokens),
            GRAM,
            anchors.astype("<u8").tobytes(),
            positions[:MAX_ANCHORS].astype("<u4").tobytes(),
            donor.tier,
        )
        self._living[donor.donor_id] = announced
        return announced
