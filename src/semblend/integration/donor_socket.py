"""Donor events over ZeroMQ, framed like an engine's own KV events: ``[topic, 8-byte sequence, msgpack payload]``.

A PUB socket, and a ROUTER that repeats what a bounded buffer still holds to subscribers that missed messages. Used by
the announcer's thread alone: a socket belongs to one thread. A buffered message takes about 0.7 bytes per donor token.
"""

from __future__ import annotations

from typing import Any, Final

from sembase.errors import MissingDependencyError
from sembase.ordered_stream import END, SEQUENCE_BYTES
from semblend.contract.donor_event import TOPIC, DonorBatch
from semblend.donors.packing import pack
from semblend.integration.replay_buffer import ReplayBuffer

try:
    import zmq
except ImportError as error:
    raise MissingDependencyError(str(error.name), "vllm", "the announcement of donors") from None

from sembase.zmq_curve import CurveServer

_TOPIC: Final = TOPIC.encode()
REQUESTS_PER_TURN: Final = 8  # announcing comes before repeating
_LINGER_MS: Final = 500


class DonorSocket:
    """Binds at once and may raise ``zmq.ZMQError``. With ``curve`` only subscribers that know its key can read."""

    def __init__(
        self, endpoint: str, replay_endpoint: str, buffer_batches: int, curve: CurveServer | None = None
    ) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.buffer = ReplayBuffer(buffer_batches)
        self._sockets: list[zmq.Socket[bytes]] = []
        self._curve = curve
        self._authenticator = None if curve is None else curve.authenticator(self._context)
        try:
            self._publisher = self._open(zmq.PUB, endpoint)
            self._replay = self._open(zmq.ROUTER, replay_endpoint)
        except zmq.ZMQError:
            self.close()
            raise

    @property
    def endpoints(self) -> tuple[str, ...]:
        """The addresses it listens at; a port of 0 has been replaced by a free one."""
        return tuple(socket.getsockopt_string(zmq.LAST_ENDPOINT) for socket in self._sockets)

    def publish(self, batch: DonorBatch) -> None:
        """Send and buffer. ZeroMQ drops the message for a subscriber that reads too slowly; it requests a replay."""
        payload = pack(batch)
        self._publisher.send_multipart((_TOPIC, _framed(self.buffer.add(payload)), payload), zmq.DONTWAIT)

    def answer(self) -> bool:
        """Serve waiting replay requests. True if one of them wanted more than the buffer holds."""
        lacks = False
        for _ in range(REQUESTS_PER_TURN):
            if not self._replay.poll(0):
                break
            lacks |= self._repeat(self._replay, self._replay.recv_multipart())
        return lacks

    def _repeat(self, replay: zmq.Socket[bytes], frames: list[bytes]) -> bool:
        if len(frames) != 3 or len(frames[2]) != SEQUENCE_BYTES:
            return False  # not a request of this protocol
        client, _, requested = frames
        start = int.from_bytes(requested, "big")
        for sequence, payload in self.buffer.since(start):
            replay.send_multipart((client, b"", _TOPIC, _framed(sequence), payload))
        replay.send_multipart((client, b"", b"", END, b""))
        return self.buffer.lacks(start)

    def close(self) -> None:
        for socket in self._sockets:
            socket.close(linger=_LINGER_MS)
        if self._authenticator is not None:
            self._authenticator.stop()
        self._context.term()

    def _open(self, kind: Any, endpoint: str) -> zmq.Socket[bytes]:
        socket = self._context.socket(kind)
        self._sockets.append(socket)
        if self._curve is not None:
            self._curve.apply(socket)
        socket.bind(endpoint)
        return socket


def _framed(sequence: int) -> bytes:
    return sequence.to_bytes(SEQUENCE_BYTES, "big")
