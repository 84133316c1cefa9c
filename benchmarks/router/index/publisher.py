"""An engine's event socket without an engine: sends all chains after the first subscription, then waits."""

from __future__ import annotations

import sys
import time

import zmq

from benchmarks.router.index.world import BLOCK_TOKENS, EVENT_BLOCKS, World
from semgate.events.wire import BlockStored, encode_batch


def main() -> int:
    world = World(int(sys.argv[1]), 1, 0)
    messages = list(_messages(world))
    context = zmq.Context()
    socket = context.socket(zmq.XPUB)
    socket.setsockopt(zmq.SNDHWM, 0)
    socket.setsockopt(zmq.LINGER, 0)
    port = socket.bind_to_random_port("tcp://127.0.0.1")
    print(f"{port} {len(messages)}", flush=True)
    while socket.recv()[:1] != b"\x01":
        pass
    for seq, payload in enumerate(messages):
        socket.send_multipart((b"", seq.to_bytes(8, "big"), payload))
    sys.stdin.read()
    socket.close()
    context.term()
    return 0


def _messages(world: World) -> list[bytes]:
    found = []
    for chain in range(world.chains):
        tokens = world.tokens(chain).tolist()
        hashes = [chain * 256 + block + 1 for block in range(len(tokens) // BLOCK_TOKENS)]
        for begin in range(0, len(hashes), EVENT_BLOCKS):
            event = BlockStored(
                list(hashes[begin : begin + EVENT_BLOCKS]),
                hashes[begin - 1] if begin else None,
                tokens[begin * BLOCK_TOKENS : (begin + EVENT_BLOCKS) * BLOCK_TOKENS],
                BLOCK_TOKENS,
                medium="GPU",
            )
            found.append(encode_batch(time.time(), [event]))
    return found


if __name__ == "__main__":
    raise SystemExit(main())
