"""Run by the engine's interpreter, which has the packages: prints what the engine announces of its exact cache."""

from __future__ import annotations

import json
import sys
from typing import Any

import msgspec
import zmq


def main() -> None:
    socket = zmq.Context().socket(zmq.SUB)
    socket.connect(sys.argv[1])
    socket.setsockopt(zmq.SUBSCRIBE, b"")
    print(json.dumps({"type": "listening"}), flush=True)
    while True:
        _time, events, *_rank = msgspec.msgpack.decode(socket.recv_multipart()[-1])
        for event in events:
            print(json.dumps(shown(event)), flush=True)


def shown(event: dict[str, Any]) -> dict[str, Any]:
    hashes = [value.hex() if isinstance(value, bytes) else str(value) for value in event.get("block_hashes", ())]
    return {"type": event["type"], "hashes": hashes, "tokens": list(event.get("token_ids", ()))}


if __name__ == "__main__":
    main()
