"""Announces donors to routers from a thread of its own: adapters say what happened, in constant time, and go on.

Off unless the settings name an endpoint. Whatever breaks here is contained and counted at the border; the
engine never waits. The thread keeps one announcement per living donor, about 0.7 bytes per token, so that a router that
comes late or missed more than the replay buffer holds can be told everything again.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import islice
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np
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
from semblend.settings import NATS

if TYPE_CHECKING:
    from semblend.integration.border import Border
    from semblend.settings import Settings

QUEUE_LIMIT: Final = 4096
BATCH_EVENTS: Final = 64
TURN_S: Final = 0.1  # how long a router that asks for a replay may wait while nothing happens
REPEAT_EVERY_S: Final = 5.0
NAMESPACES_REMEMBERED: Final = 4096


def open_announcer(settings: Settings, border: Border, rank: int = 0) -> DonorAnnouncer:
    """What the user got wrong is said at once; what the network does not give, the border says later."""
    assert settings.donor_events_key_file is not None, "settings are checked"
    try:
        key = read_key(settings.donor_events_key_file)
    except ValueError as error:
        raise ConfigurationError(str(error)) from None
    if settings.donor_events.startswith(NATS):
        return _on_nats(settings, key, border, rank)
    endpoint, replay = endpoint_of_rank(settings.donor_events, rank), replay_endpoint(settings.donor_events, rank)
    from semblend.integration.donor_socket import DonorSocket  # noqa: PLC0415 - its packages are optional

    return DonorAnnouncer(partial(DonorSocket, endpoint, replay, settings.donor_events_buffer), key, border, rank)


def _on_nats(settings: Settings, key: bytes, border: Border, rank: int) -> DonorAnnouncer:
    if rank:
        raise ConfigurationError(
            f"donor events over NATS are of one worker without ranks, and this is rank {rank}; with data parallelism "
            "announce them on tcp://ADDRESS:PORT"
        )
    from semblend.integration.dynamo.nats_socket import open_nats_announcer  # noqa: PLC0415 - its packages are optional

    return open_nats_announcer(
        settings.donor_events,
        str(settings.donor_events_worker),
        key,
        border,
        buffer_batches=settings.donor_events_buffer,
    )


class Announcer(Protocol):
    """What adapters call, on the scheduler's thread."""

    def loadable(
        self, donor_id: str, tokens: NDArray[np.uint32], tenant: str | None, lora: str | None, tier: Tier = "host"
    ) -> None: ...
    def withdrawn(self, donor_id: str, reason: str) -> None: ...
    def relocated(self, donor_id: str, tier: Tier) -> None: ...
    def purged(self, reason: str) -> None: ...
    def close(self) -> None: ...


class _Silent:
    """The announcer of a deployment that tells nobody."""

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


SILENT: Final[Announcer] = _Silent()


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


class DonorAnnouncer:
    """The methods are for the scheduler's thread and never block; ``lost`` counts what did not fit into the queue.

    After a loss nobody could tell which donors are gone: routers are told to forget all, and hear of new ones only.
    """

    def __init__(self, open_socket: Callable[[], BatchSocket], key: bytes, border: Border, rank: int = 0) -> None:
        self.lost = 0
        self._open_socket = open_socket
        self._border = border
        self._rank = rank
        self._says: queue.Queue[_Loadable | DonorEvent] = queue.Queue(QUEUE_LIMIT)
        self._has_lost = False
        self._is_mute = False
        self._ending = threading.Event()
        self._voice = _Voice(key)
        self._thread = threading.Thread(target=self._work, name="semblend-announce", daemon=True)
        self._thread.start()

    def loadable(
        self, donor_id: str, tokens: NDArray[np.uint32], tenant: str | None, lora: str | None, tier: Tier = "host"
    ) -> None:
        self._say(_Loadable(donor_id, tokens, tenant, lora, tier))

    def withdrawn(self, donor_id: str, reason: str) -> None:
        self._say(DonorWithdrawn(donor_id, reason))

    def relocated(self, donor_id: str, tier: Tier) -> None:
        self._say(DonorRelocated(donor_id, tier))

    def purged(self, reason: str) -> None:
        self._say(DonorsPurged(None, reason))

    def close(self, patience_s: float = 2.0) -> None:
        """Say that all donors are gone, and end."""
        self.purged("shutdown")
        self._ending.set()
        self._thread.join(patience_s)

    def _say(self, what: _Loadable | DonorEvent) -> None:
        if self._is_mute:
            return
        try:
            self._says.put_nowait(what)
        except queue.Full:
            self.lost += 1
            self._has_lost = True

    def _work(self) -> None:
        socket = self._border.call("announce", "", self._open_socket, None)
        if socket is None:
            self._is_mute = True  # the border has said why; nobody will empty the queue
            return
        self._border.call("announce", "", partial(self._publish, socket, [self._voice.begin()]), None)
        repeated_s = 0.0
        while not (self._ending.is_set() and self._says.empty()):
            said = self._take()
            if not self._border.call("announce", "", partial(self._speak, socket, said), False):
                self._has_lost = True  # part of it may have been a withdrawal
            is_asked = self._border.call("announce", "", socket.answer, False)
            if is_asked and time.monotonic() - repeated_s >= REPEAT_EVERY_S:
                repeated_s = time.monotonic()
                self._border.call("announce", "", partial(self._publish, socket, self._voice.everything()), None)
        self._border.call("announce", "", socket.close, None)

    def _take(self) -> list[_Loadable | DonorEvent]:
        """What was said since the last turn, at most a batch of it. After a loss: nothing, and all is forgotten."""
        if self._has_lost:
            self._has_lost = False
            for _ in range(self._says.qsize()):
                self._says.get_nowait()
            return [self._voice.begin()]
        said: list[_Loadable | DonorEvent] = []
        try:
            said.append(self._says.get(timeout=TURN_S))
            while len(said) < BATCH_EVENTS:
                said.append(self._says.get_nowait())
        except queue.Empty:
            pass
        return said

    def _speak(self, socket: BatchSocket, said: Sequence[_Loadable | DonorEvent]) -> bool:
        self._publish(socket, self._voice.events(said))
        return True

    def _publish(self, socket: BatchSocket, events: Iterable[DonorEvent]) -> None:
        rest = iter(events)
        while part := tuple(islice(rest, BATCH_EVENTS)):
            socket.publish(DonorBatch(time.time(), part, self._rank))


class _Voice:
    """What has been said and is still true, by donor. Belongs to the announcer's thread."""

    def __init__(self, key: bytes) -> None:
        self._living: dict[str, DonorAnnounced] = {}
        self._digest = lru_cache(NAMESPACES_REMEMBERED)(partial(namespace_digest, key))
        self._salts = lru_cache(NAMESPACES_REMEMBERED)(partial(anchor_salts, key))

    def begin(self) -> GenerationReset:
        self._living.clear()
        return GenerationReset(time.time_ns())

    def everything(self) -> list[DonorEvent]:
        return [GenerationReset(time.time_ns()), *self._living.values()]

    def events(self, said: Iterable[_Loadable | DonorEvent]) -> Iterator[DonorEvent]:
        for what in said:
            if isinstance(what, _Loadable):
                yield self._announce(what)
            elif isinstance(what, DonorWithdrawn):
                if self._living.pop(what.donor_id, None) is not None:
                    yield what
            elif isinstance(what, DonorRelocated):
                if (donor := self._living.get(what.donor_id)) is not None:
                    self._living[what.donor_id] = replace(donor, tier=what.tier)
                    yield what
            else:
                self._living.clear()
                yield what

    def _announce(self, donor: _Loadable) -> DonorAnnounced:
        namespace = self._digest(donor.tenant, donor.lora)
        positions, hashes = thin_periodic(select_anchors(donor.tokens))
        anchors = keyed_anchors(hashes[:MAX_ANCHORS], self._salts(namespace))
        said = DonorAnnounced(
            donor.donor_id,
            namespace,
            len(donor.tokens),
            GRAM,
            anchors.astype("<u8").tobytes(),
            positions[:MAX_ANCHORS].astype("<u4").tobytes(),
            donor.tier,
        )
        self._living[donor.donor_id] = said
        return said
