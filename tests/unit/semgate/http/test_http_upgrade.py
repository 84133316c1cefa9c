"""A request that asks for an upgrade is a plain request: its body is read and never becomes another request."""

from __future__ import annotations

import asyncio
import json
from collections.abc import MutableMapping
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from tests.attacks.upgrade import HIDDEN, JDK, VARIANTS, Variant, jdk_request, send, verdict
from tests.fakes.scripted_upstream import connected
from tests.unit.semgate.http.test_http_server import play, serving

from semgate.http.faults import Send, send_json
from semgate.http.request_body import Receive, read_body


class Noting:
    """An app that notes what it is asked."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, bytes]] = []
        self.headers: list[tuple[tuple[bytes, bytes], ...]] = []

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        body = await read_body(receive, tuple(scope["headers"]))
        self.seen.append((scope["path"], body))
        self.headers.append(tuple(scope["headers"]))
        await send_json(send, 200, b"{}")


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda each: each.name)
def test_a_body_is_never_read_as_a_request(variant: Variant) -> None:
    app = Noting()

    async def act() -> None:
        async with serving(app) as port:
            received = await send(port, variant)
            assert received.count(b"HTTP/1.1 200") == 1

    play(act)
    assert verdict(variant, app.seen) == "one, whole"


def test_the_request_of_javas_client_is_answered() -> None:
    app, sent = Noting(), jdk_request()

    async def act() -> None:
        async with serving(app) as port:
            assert b"HTTP/1.1 200" in await send(port, sent)

    play(act)
    assert [json.loads(body)["messages"][0]["content"] for _, body in app.seen] == ["hello"]
    (headers,) = app.headers
    assert {b"upgrade", b"http2-settings", b"connection"} & {name for name, _ in headers} == set()


def test_the_other_words_of_connection_stay() -> None:
    app = Noting()

    async def act() -> None:
        async with serving(app) as port, connected(port) as client:
            head = "GET / HTTP/1.1\r\nhost: a\r\nconnection: close, Upgrade\r\nupgrade: h2c\r\n\r\n"
            client.writer.write(head.encode())
            assert (await client.answer()).status == 200
            assert await client.reader.read() == b"", "the client asked to close"

    play(act)
    assert (b"connection", b"close") in app.headers[0]


@settings(max_examples=25, deadline=None, phases=(Phase.explicit, Phase.generate))  # each example is a server
@given(
    st.lists(st.tuples(st.booleans(), st.booleans(), st.binary(max_size=40) | st.just(HIDDEN)), min_size=1, max_size=4),
    st.lists(st.integers(min_value=1, max_value=60), max_size=8),
)
def test_requests_cut_anywhere_reach_the_app_as_without_the_upgrade(
    requests: list[tuple[bool, bool, bytes]], cuts: list[int]
) -> None:
    app = Noting()

    async def act() -> None:
        async with serving(app) as port, connected(port) as client:
            rest = list(cuts)
            for number, (upgrades, chunked, body) in enumerate(requests):
                lines = [f"POST /{number} HTTP/1.1", "host: a", *(JDK if upgrades else ())]
                lines.append("transfer-encoding: chunked" if chunked else f"content-length: {len(body)}")
                wire = "\r\n".join(lines).encode() + b"\r\n\r\n"
                if chunked:
                    wire += (b"%x\r\n%b\r\n" % (len(body), body) if body else b"") + b"0\r\n\r\n"
                else:
                    wire += body
                while rest and len(wire) > rest[0]:
                    cut = rest.pop(0)
                    client.writer.write(wire[:cut])
                    wire = wire[cut:]
                    await asyncio.sleep(0)
                client.writer.write(wire)
                assert (await client.answer()).status == 200

    play(act)
    assert app.seen == [(f"/{number}", body) for number, (_, _, body) in enumerate(requests)]


def test_a_tunnel_is_refused() -> None:
    app = Noting()

    async def act() -> None:
        async with serving(app) as port, connected(port) as client:
            client.writer.write(b"CONNECT a:1 HTTP/1.1\r\nhost: a\r\n\r\n")
            assert (await client.answer()).status == 400

    play(act)
    assert app.seen == []
