"""GET requests to a Kubernetes API server: a path in, a status and lines of the body out as they arrive.

One connection per request, TLS by the cluster's own authority. The token and the authority are read for each request
because the kubelet replaces them. Called by ``kubernetes`` alone.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sembase.http.client import Credentials, Headers, HttpClient, HttpFault, describe_fault

_MAX_LINE_BYTES: Final = 8 << 20


class ApiServerFaultError(OSError):
    """The server could not be reached, or its answer is not valid."""


@dataclass(frozen=True, slots=True)
class ApiServer:
    """``connect_s`` and ``quiet_s`` bound connecting and the silence between two pieces of an answer."""

    origin: str
    token_file: Path | None = None
    authority_file: Path | None = None
    connect_s: float = 5.0
    quiet_s: float = 330.0

    @asynccontextmanager
    async def get(self, path_and_query: str) -> AsyncIterator[tuple[int, AsyncIterator[bytes]]]:
        client = HttpClient(
            connect_seconds=self.connect_s,
            first_byte_seconds=self.quiet_s,
            idle_seconds=self.quiet_s,
            max_connections_per_origin=1,
            credentials=Credentials(ca_file=self.authority_file),
        )
        try:
            reply = await client.send(self.origin, "GET", path_and_query, self._headers(), b"")
            async with aclosing(_lines(reply.chunks())) as lines:
                yield reply.status, lines
        except HttpFault as fault:
            raise ApiServerFaultError(f"invalid reply of the API server: {describe_fault(fault)}") from None
        except ValueError as error:  # the reader of the lines could not decode one
            raise ApiServerFaultError(f"invalid reply of the API server: {type(error).__name__}") from None
        finally:
            await client.close()

    def _headers(self) -> Headers:
        headers = [(b"accept", b"application/json"), (b"connection", b"close")]
        if self.token_file is not None:
            headers.append((b"authorization", b"Bearer " + self.token_file.read_bytes().strip()))
        return tuple(headers)


async def _lines(pieces: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    kept = bytearray()
    async for piece in pieces:
        kept += piece
        *whole, rest = kept.split(b"\n")
        for line in whole:
            if line.strip():
                yield bytes(line)
        kept = bytearray(rest)
        if len(kept) > _MAX_LINE_BYTES:
            raise ApiServerFaultError("invalid reply of the API server: a line is too long")
    if kept.strip():
        yield bytes(kept)
