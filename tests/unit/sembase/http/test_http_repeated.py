from __future__ import annotations

import asyncio

from tests.waiting import PATIENCE_S, until

from sembase.http.credentials import Credentials, KeptCredentials
from sembase.http.repeated import RepeatedRequest


async def serve_endlessly(status: bytes, opened: list[asyncio.StreamWriter]) -> asyncio.Server:
    """Answers every request with a body that does not end."""

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        opened.append(writer)
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 " + status + b"\r\ntransfer-encoding: chunked\r\n\r\n")
        try:
            while True:
                writer.write(b"10000\r\n" + bytes(0x10000) + b"\r\n")
                await writer.drain()
        except ConnectionError:
            writer.close()

    return await asyncio.start_server(accept, "127.0.0.1", 0)


def replies_to(status: bytes) -> list[bytes | None]:
    replies: list[bytes | None] = []

    async def work() -> None:
        opened: list[asyncio.StreamWriter] = []
        server = await serve_endlessly(status, opened)
        origin = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        request = RepeatedRequest(origin, KeptCredentials(Credentials()), replies.append, timeout_s=120.0)
        try:

            def asked() -> bool:
                request.send("/metrics")
                return len(replies) >= 2

            await until(asked)
        finally:
            request.close()
            server.close()
            await until(lambda: all(each.is_closing() for each in opened))

    asyncio.run(asyncio.wait_for(work(), PATIENCE_S))
    return replies[:2]


def test_a_body_beyond_the_limit_is_no_reply() -> None:
    assert replies_to(b"200 OK") == [None, None]


def test_an_error_whose_body_does_not_end_does_not_stop_the_next_request() -> None:
    assert replies_to(b"500 Internal Server Error") == [None, None]
