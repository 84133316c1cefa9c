"""Ask a publisher for what it still has: a first sequence number in, the buffered messages from there on out.

The protocol is vLLM's, which SGLang shares: a DEALER sends ``["", seq]``, the ROUTER answers with
``["", topic, seq, payload]`` for each buffered message and ends with number -1. A slow reader may miss some in between.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Final, NamedTuple

import zmq
import zmq.asyncio

SEQ_BYTES: Final = 8
END: Final = (-1).to_bytes(SEQ_BYTES, "big", signed=True)

# vLLM buffers 10,000 batches unless told otherwise.
RECEIVE_MESSAGES: Final = 20_000


class Message(NamedTuple):
    seq: int
    payload: bytes


class ReplayError(Exception):
    """The publisher did not answer in time, or in a form we do not know."""


async def replay(
    context: zmq.asyncio.Context, endpoint: str, first_seq: int, *, timeout_seconds: float
) -> AsyncGenerator[Message, None]:
    """A socket of its own per question: answers to an earlier one that took too long can never mix in."""
    socket = context.socket(zmq.DEALER)
    try:
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.RCVHWM, RECEIVE_MESSAGES)
        socket.setsockopt(zmq.IPV6, "[" in endpoint)
        socket.connect(endpoint)
        await socket.send_multipart((b"", first_seq.to_bytes(SEQ_BYTES, "big")))
        while True:
            if not await socket.poll(timeout_seconds * 1000):
                raise ReplayError(f"no answer from {endpoint} within {timeout_seconds:g} s")
            frames = await socket.recv_multipart()
            if len(frames) != 4 or len(frames[2]) != SEQ_BYTES:
                raise ReplayError(f"an answer of {len(frames)} frames from {endpoint}")
            if frames[2] == END:
                return
            yield Message(int.from_bytes(frames[2], "big"), frames[3])
    finally:
        socket.close()
