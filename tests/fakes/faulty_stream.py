"""A replica in a process of its own, to be killed or stopped, or to break its streams. Arguments: port, mode.

A stream has ``tokens`` tokens, ``pause_s`` apart, as its request says; it is complete only with its last event.
Connections that are idle close after `IDLE_SECONDS`, as uvicorn's do. The accept queue holds `BACKLOG`, so that only
the faults of the mode are met.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from typing import Final, Literal, get_args

Mode = Literal["ok", "reset", "bad_chunk", "garbage", "long_line"]
MODES: Final[tuple[Mode, ...]] = get_args(Mode)
BACKLOG: Final = 4096
IDLE_SECONDS: Final = 5.0
LONG_LINE_BYTES: Final = 20 << 20
BROKEN_AT: Final = 3  # the token at which the mode shows
_HEAD: Final = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def _plain(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)


def _chunk(event: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(event), event)


def _event(number: int, mode: Mode) -> bytes:
    if number == BROKEN_AT and mode == "garbage":
        return b"\xff\xfe{{{:::\r\r\n\ndata: {not json\n\n" * 20
    if number == BROKEN_AT and mode == "long_line":
        return b"data: " + b"x" * LONG_LINE_BYTES + b"\n\n"
    return b'data: {"choices":[{"index":0,"delta":{"content":"t%d "}}]}\n\n' % number


async def _stream(writer: asyncio.StreamWriter, tokens: int, pause_s: float, mode: Mode) -> bool:
    writer.write(_HEAD)
    for number in range(tokens):
        writer.write(_chunk(_event(number, mode)))
        await writer.drain()
        if number == BROKEN_AT and mode == "reset":
            writer.transport.abort()
            return False
        if number == BROKEN_AT and mode == "bad_chunk":
            writer.write(b"zz\r\nhello\r\n")
        await asyncio.sleep(pause_s)
    writer.write(_chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n")
    await writer.drain()
    return True


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, mode: Mode) -> None:
    is_open = True
    try:
        while is_open:
            async with asyncio.timeout(IDLE_SECONDS):
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            length = re.search(r"content-length: (\d+)", head, re.IGNORECASE)
            body = await reader.readexactly(int(length.group(1)) if length else 0)
            asked = json.loads(body or b"{}")
            if asked.get("stream"):
                is_open = await _stream(writer, asked.get("tokens", 1), asked.get("pause_s", 0.0), mode)
            else:
                writer.write(_plain(b'{"object":"list","data":[{"id":"m"}]}' if "/v1/models" in head else b"{}"))
                await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError, TimeoutError):
        pass
    finally:
        writer.close()


async def _main(port: int, mode: Mode) -> None:
    server = await asyncio.start_server(lambda r, w: _serve(r, w, mode), "127.0.0.1", port, backlog=BACKLOG)
    await server.serve_forever()


if __name__ == "__main__":
    (chosen,) = (mode for mode in MODES if mode == sys.argv[2])
    asyncio.run(_main(int(sys.argv[1]), chosen))
