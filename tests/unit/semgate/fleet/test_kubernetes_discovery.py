"""EndpointSlice list and watch against a fake API server on loopback, fault by fault."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from tests.waiting import PATIENCE_S

from sembase.errors import ConfigurationError
from semgate.fleet import Endpoint
from semgate.fleet.discovery.api_server import ApiServer
from semgate.fleet.discovery.kubernetes import EndpointSliceWatch, Service, WatchOptions, in_cluster, own_namespace
from semgate.fleet.discovery.slices import SliceOptions, endpoints_of

FAST = WatchOptions(watch_s=60, page=2, retry_s=0.01, max_retry_s=0.02)


def pod(name: str, address: str, **conditions: bool) -> dict[str, Any]:
    return {"addresses": [address], "conditions": conditions, "targetRef": {"kind": "Pod", "name": name}}


def slice_of(name: str, *pods: dict[str, Any], version: str = "1", port: int = 8000) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "resourceVersion": version},
        "addressType": "IPv4",
        "ports": [{"name": "metrics", "port": 9}, {"name": "http", "port": port}],
        "endpoints": list(pods),
    }


def page(version: str, *slices: dict[str, Any], more: str = "") -> dict[str, Any]:
    return {"metadata": {"resourceVersion": version, "continue": more}, "items": list(slices)}


class Reply:
    """One scripted answer: lines sent as chunks; ``stay`` keeps a watch open after them."""

    def __init__(self, *lines: dict[str, Any] | bytes, status: int = 200, stay: bool = False) -> None:
        self.lines, self.status, self.stay = lines, status, stay


class FakeApiServer:
    """Answers requests in the order of its script and notes what it was asked."""

    def __init__(self, *script: Reply) -> None:
        self._script = list(script)
        self.asked: list[dict[str, str]] = []
        self.tokens: list[str] = []
        self.all_sent = asyncio.Event()

    async def __aenter__(self) -> FakeApiServer:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.origin = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            target = head.split(" ")[1]
            query = {name: values[0] for name, values in parse_qs(urlsplit(target).query).items()}
            self.asked.append({"path": urlsplit(target).path, **query})
            self.tokens.append(head.partition("authorization: Bearer ")[2].partition("\r\n")[0])
            reply = self._script.pop(0) if self._script else Reply(stay=True)
            writer.write(f"HTTP/1.1 {reply.status} X\r\ntransfer-encoding: chunked\r\n\r\n".encode())
            for line in reply.lines:
                raw = line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n"
                for part in (raw[:7], raw[7:]):  # events may come in pieces
                    writer.write(f"{len(part):x}\r\n".encode() + part + b"\r\n")
                    await writer.drain()
            if not self._script:
                self.all_sent.set()
            if reply.stay:
                await reader.read()
            writer.write(b"0\r\n\r\n")
            await writer.drain()
        except (ConnectionError, asyncio.CancelledError):
            pass  # the watch was ended by the test
        finally:
            writer.close()


async def watched(
    server: FakeApiServer,
    until: Callable[[list[tuple[Endpoint, ...]]], bool],
    token_file: Path | None = None,
) -> tuple[list[tuple[Endpoint, ...]], list[str]]:
    """All that was reported until the condition holds; the watch is cancelled then."""
    reported: list[tuple[Endpoint, ...]] = []
    faults: list[str] = []
    done = asyncio.Event()

    def changed(endpoints: tuple[Endpoint, ...]) -> None:
        reported.append(endpoints)
        if until(reported):
            done.set()

    service = Service("engines", "serving", SliceOptions(port_name="http", events_port=5557))
    watch = EndpointSliceWatch(ApiServer(server.origin, token_file), service, changed, faults.append, FAST)
    task = asyncio.create_task(watch.run())
    async with asyncio.timeout(PATIENCE_S):
        await done.wait()
        await server.all_sent.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    return reported, faults


def names(endpoints: tuple[Endpoint, ...]) -> list[str]:
    return [each.name for each in endpoints]


def test_pages_are_joined_and_the_watch_begins_at_their_version() -> None:
    async def run() -> None:
        async with FakeApiServer(
            Reply(page("7", slice_of("s1", pod("a", "10.0.0.1")), more="next")),
            Reply(page("7", slice_of("s2", pod("b", "10.0.0.2", ready=False)))),
            Reply(
                {"type": "MODIFIED", "object": slice_of("s2", pod("b", "10.0.0.2", ready=True), version="8")},
                {"type": "ADDED", "object": slice_of("s3", pod("c", "10.0.0.3"), version="9")},
                {"type": "DELETED", "object": slice_of("s1", version="10")},
                stay=True,
            ),
        ) as server:
            reported, faults = await watched(server, lambda reported: len(reported) == 4)
            assert [names(each) for each in reported] == [["a", "b"], ["a", "b"], ["a", "b", "c"], ["b", "c"]]
            assert [each.ready for each in reported[0]] == [True, False]
            assert reported[0][0] == Endpoint("a", "http://10.0.0.1:8000", events="tcp://10.0.0.1:5557", ready=True)
            assert not faults
            first, second, third = server.asked
            assert first["path"] == "/apis/discovery.k8s.io/v1/namespaces/serving/endpointslices"
            assert first["labelSelector"] == "kubernetes.io/service-name=engines"
            assert (first["limit"], second["continue"]) == ("2", "next")
            assert (third["watch"], third["resourceVersion"], third["allowWatchBookmarks"]) == ("1", "7", "true")

    asyncio.run(run())


def test_a_watch_that_ends_is_taken_up_where_its_bookmark_was() -> None:
    async def run() -> None:
        bookmark = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "50"}}}
        async with FakeApiServer(
            Reply(page("7", slice_of("s1", pod("a", "10.0.0.1")))),
            Reply(bookmark),
            Reply({"type": "ADDED", "object": slice_of("s2", pod("b", "10.0.0.2"), version="51")}, stay=True),
        ) as server:
            reported, faults = await watched(server, lambda reported: len(reported) == 2)
            assert [names(each) for each in reported] == [["a"], ["a", "b"]]
            assert [each.get("resourceVersion") for each in server.asked] == [None, "7", "50"]
            assert not faults

    asyncio.run(run())


@pytest.mark.parametrize(
    "gone",
    [
        Reply({"kind": "Status", "code": 410}, status=410),
        Reply({"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired"}}),
    ],
)
def test_a_forgotten_version_is_listed_again_and_what_left_meanwhile_leaves(gone: Reply) -> None:
    async def run() -> None:
        async with FakeApiServer(
            Reply(page("7", slice_of("s1", pod("a", "10.0.0.1"), pod("b", "10.0.0.2")))),
            gone,
            Reply(page("90", slice_of("s1", pod("b", "10.0.0.2")))),
            Reply(stay=True),
        ) as server:
            reported, faults = await watched(server, lambda reported: len(reported) == 2)
            assert [names(each) for each in reported] == [["a", "b"], ["b"]]
            assert [each.get("watch") for each in server.asked] == [None, "1", None, "1"]
            assert server.asked[-1]["resourceVersion"] == "90"
            assert not faults

    asyncio.run(run())


@pytest.mark.parametrize(
    ("trouble", "message"),
    [
        (Reply(status=500), "answered 500"),
        (Reply(status=403), "needs get, list and watch on endpointslices"),
        (Reply(b"{not json\n"), "JSONDecodeError"),
    ],
)
def test_trouble_keeps_the_known_endpoints_and_is_reported(trouble: Reply, message: str) -> None:
    async def run() -> None:
        async with FakeApiServer(
            Reply(page("7", slice_of("s1", pod("a", "10.0.0.1")))),
            trouble,
            trouble,
            Reply(page("8", slice_of("s1", pod("a", "10.0.0.1"), pod("b", "10.0.0.2")))),
            Reply(stay=True),
        ) as server:
            reported, faults = await watched(server, lambda reported: len(reported) == 2)
            assert [names(each) for each in reported] == [["a"], ["a", "b"]]
            assert len(faults) == 2
            assert message in faults[0]
            assert "1 known replicas are kept" in faults[0]

    asyncio.run(run())


def test_the_token_is_read_again_for_each_request(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("first\n")

    async def run() -> None:
        async with FakeApiServer(
            Reply(page("7", slice_of("s1", pod("a", "10.0.0.1")))),
            Reply({"type": "ADDED", "object": slice_of("s2", pod("b", "10.0.0.2"))}),
            Reply({"type": "ADDED", "object": slice_of("s3", pod("c", "10.0.0.3"))}, stay=True),
        ) as server:

            def until(reported: list[tuple[Endpoint, ...]]) -> bool:
                if len(reported) == 2:
                    token.write_text("second\n")
                return len(reported) == 3

            await watched(server, until, token)
            assert server.tokens == ["first", "first", "second"]

    asyncio.run(run())


def test_a_server_that_is_away_is_asked_again_with_pauses() -> None:
    async def run() -> None:
        faults: list[str] = []
        enough = asyncio.Event()

        def failed(reason: str) -> None:
            faults.append(reason)
            if len(faults) == 3:
                enough.set()

        async with FakeApiServer() as server:
            origin = server.origin
        watch = EndpointSliceWatch(ApiServer(origin), Service("e", "n"), lambda _: None, failed, FAST)
        task = asyncio.create_task(watch.run())
        async with asyncio.timeout(PATIENCE_S):
            await enough.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert "0 known replicas are kept" in faults[0]

    asyncio.run(run())


def test_a_terminating_pod_is_drained_and_the_serving_copy_counts() -> None:
    slices = [
        slice_of("old", pod("a", "10.0.0.1", ready=False, serving=True, terminating=True)),
        slice_of("new", pod("a", "10.0.0.1", ready=True), pod("b", "10.0.0.2", ready=False, terminating=True)),
    ]
    for order in (slices, slices[::-1]):
        found = endpoints_of(order, SliceOptions(port_name="http"))
        assert [(each.name, each.ready, each.terminating) for each in found] == [("a", True, False), ("b", False, True)]


def test_what_cannot_be_read_is_left_out() -> None:
    odd = slice_of("s", {"addresses": []}, {"addresses": ["fd00::1"], "conditions": None})
    no_port = {**slice_of("p", pod("c", "10.0.0.3")), "ports": None}
    (found,) = endpoints_of([odd, no_port], SliceOptions(port_name="http", scheme="https", donors_port=6000))
    assert found == Endpoint("[fd00::1]:8000", "https://[fd00::1]:8000", donors="tcp://[fd00::1]:6000", ready=True)
    assert endpoints_of([slice_of("s", pod("a", "10.0.0.1"))], SliceOptions(port_name="grpc")) == ()


def test_outside_a_pod_it_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="use static discovery"):
        in_cluster(tmp_path)
    with pytest.raises(ConfigurationError, match="set --kubernetes-namespace"):
        own_namespace(tmp_path)
    (tmp_path / "token").write_text("t")
    (tmp_path / "namespace").write_text("serving\n")
    assert in_cluster(tmp_path).origin == "https://kubernetes.default.svc"
    assert own_namespace(tmp_path) == "serving"


def test_a_list_that_was_refused_is_reported_again() -> None:
    async def run() -> None:
        listed = Reply(page("5", slice_of("s", pod("a", "10.0.0.1"))))
        async with FakeApiServer(listed, listed) as server:
            taken = asyncio.Event()
            refusals: list[str] = []

            def changed(endpoints: tuple[Endpoint, ...]) -> None:
                if not refusals:
                    raise ConfigurationError("no room")
                taken.set()

            service = Service("engines", "serving", SliceOptions(port_name="http"))
            watch = EndpointSliceWatch(ApiServer(server.origin), service, changed, refusals.append, FAST)
            task = asyncio.create_task(watch.run())
            async with asyncio.timeout(PATIENCE_S):
                await taken.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert "no room" in refusals[0]

    asyncio.run(run())
