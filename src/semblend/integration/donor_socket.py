"""Donor events on the wire, framed like an engine's own KV events: ``[topic, 8-byte sequence, msgpack payload]``.

A PUB socket and, for those who missed something, a ROUTER that repeats what a bounded buffer still holds. Used by the
announcer's thread alone: sockets know one thread. A buffered message takes about 0.7 bytes per donor token it names.
"""

from __future__ import annotations

from typing import Any, Final

from sembase.errors import MissingDependencyError
from semblend.contract.donor_event import TOPIC, DonorBatch, encode_batch
from semblend.integration.replay_buffer import ReplayBuffer

try:
    import msgspec
    import zmq
except ImportError as error:
    raise MissingDependencyError(str(error.name), "vllm", "the announcement of donors") from None

_TOPIC: Final = TOPIC.encode()
_SEQUENCE_BYTES: Final = 8
END: Final = (-1).to_bytes(_SEQUENCE_BYTES, "big", signed=True)
REQUESTS_PER_TURN: Final = 8  # repeating is a service; announcing comes first
_LINGER_MS: Final = 500


class DonorSocket:
    """Binds at once and may raise ``zmq.ZMQError``."""

    def __init__(self, endpoint: str, replay_endpoint: str, buffer_batches: int) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._encode = msgspec.msgpack.Encoder().encode
        self.said = ReplayBuffer(buffer_batches)
        self._sockets: list[zmq.Socket[bytes]] = []
        try:
            self._publisher = self._open(zmq.PUB, endpoint)
            self._replay = self._open(zmq.ROUTER, replay_endpoint)
        except zmq.ZMQError:
            self.close()
            raise

    @property
    def endpoints(self) -> tuple[str, ...]:
        """Where it really listens: a port of 0 has become one."""
        return tuple(socket.getsockopt_string(zmq.LAST_ENDPOINT) for socket in self._sockets)

    def publish(self, batch: DonorBatch) -> None:
        """The message is on its way, or dropped by ZeroMQ for a reader that is too slow and will ask again."""
        payload = self._encode(encode_batch(batch))
        self._publisher.send_multipart((_TOPIC, _framed(self.said.add(payload)), payload), zmq.DONTWAIT)

    def answer(self) -> bool:
        """Repeat for those who wait. True when somebody asked for more than the buffer holds."""
        lacks = False
        for _ in range(REQUESTS_PER_TURN):
            if not self._replay.poll(0):
                break
            lacks |= self._repeat(self._replay, self._replay.recv_multipart())
        return lacks

    def _repeat(self, replay: zmq.Socket[bytes], frames: list[bytes]) -> bool:
        if len(frames) != 3 or len(frames[2]) != _SEQUENCE_BYTES:
            return False  # no request of this protocol
        client, _, asked = frames
        start = int.from_bytes(asked, "big")
        for sequence, payload in self.said.since(start):
            replay.send_multipart((client, b"", _TOPIC, _framed(sequence), payload))
        replay.send_multipart((client, b"", b"", END, b""))
        return self.said.lacks(start)

    def close(self) -> None:
        for socket in self._sockets:
            socket.close(linger=_LINGER_MS)
        self._context.term()

    def _open(self, kind: Any, endpoint: str) -> zmq.Socket[bytes]:
        socket = self._context.socket(kind)
        self._sockets.append(socket)
        socket.bind(endpoint)
        return socket


def _framed(sequence: int) -> bytes:
    return sequence.to_bytes(_SEQUENCE_BYTES, "big")
