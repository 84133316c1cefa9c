"""The picker's gRPC port without a data plane: silent streams, the limit of streams, paths as the router reads them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.clock import MovableClock, run_with_clock
from tests.waiting import PATIENCE_S, until

pytest.importorskip("grpc", reason="needs the extra picker")
pytest.importorskip("envoy.service.ext_proc.v3", reason="needs the extra picker")

import grpc
import grpc.aio
from envoy.config.core.v3.base_pb2 import HeaderMap, HeaderValue
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from tests.fakes.picker_rig import PickerRig, picker_rig
from tests.fakes.raw_client import ask
from tests.fakes.router_rig import router_rig

from semgate.picker import messages
from semgate.picker.ext_proc import HEADERS_SECONDS

METHOD = "/envoy.service.ext_proc.v3.ExternalProcessor/Process"
NOT_SHARED = [("grpc.use_local_subchannel_pool", 1)]  # each channel has a connection of its own


@asynccontextmanager
async def connected(rig: PickerRig) -> AsyncIterator[Any]:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{rig.picker_port}", options=NOT_SHARED) as channel:
        await channel.channel_ready()
        yield channel


def opened(channel: Any) -> Any:
    return channel.stream_stream(
        METHOD,
        request_serializer=messages.ProcessingRequest.SerializeToString,
        response_deserializer=messages.ProcessingResponse.FromString,
    )()


def silent(channel: Any) -> asyncio.Task[grpc.StatusCode]:
    """A stream that is open on the server and sends nothing; its status when the server ends it."""

    async def status() -> grpc.StatusCode:
        call = opened(channel)
        found: grpc.StatusCode = await call.code()
        return found

    return asyncio.create_task(status())


def request(method: str, path: str) -> messages.Message:
    pairs = ((":method", method), (":path", path))
    headers = HeaderMap(headers=[HeaderValue(key=key, raw_value=value.encode("latin-1")) for key, value in pairs])
    return messages.ProcessingRequest(request_headers={"headers": headers, "end_of_stream": True})


async def picked(rig: PickerRig, method: str = "GET", path: str = "/v1/models") -> int | grpc.StatusCode:
    """The status that a request of its own connection gets: 200 if it was placed."""
    async with connected(rig) as channel:
        call = opened(channel)
        try:
            await call.write(request(method, path))
            reply = await call.read()
        except grpc.aio.AioRpcError as error:
            return error.code()
        if reply is grpc.aio.EOF:
            return await call.code()
        call.cancel()
        return int(reply.immediate_response.status.code) if reply.HasField("immediate_response") else 200


async def health_of(channel: Any, service: str) -> str:
    check = channel.unary_unary(
        "/grpc.health.v1.Health/Check", HealthCheckRequest.SerializeToString, HealthCheckResponse.FromString
    )
    answer = await check(HealthCheckRequest(service=service))
    return str(HealthCheckResponse.ServingStatus.Name(answer.status))


def streams_of(rig: PickerRig) -> int:
    return rig.processor.streams


def test_a_stream_without_request_headers_is_ended(tmp_path: Path) -> None:
    async def work(clock: MovableClock) -> None:
        async with picker_rig(tmp_path) as rig, connected(rig) as channel:
            waiting = silent(channel)
            await until(lambda: streams_of(rig) == 1)
            await clock.skip(HEADERS_SECONDS - 1.0)
            assert not waiting.done()
            await clock.skip(1.0)
            assert await waiting == grpc.StatusCode.DEADLINE_EXCEEDED
            await until(lambda: streams_of(rig) == 0)
            assert await picked(rig) == 200

    run_with_clock(lambda clock: asyncio.wait_for(work(clock), 100 * PATIENCE_S))


def test_a_stream_begins_with_request_headers(tmp_path: Path) -> None:
    """Otherwise a body would pass uninspected."""

    async def work() -> None:
        async with picker_rig(tmp_path) as rig, connected(rig) as channel:
            call = opened(channel)
            await call.write(messages.ProcessingRequest(request_body={"body": b"{}", "end_of_stream": True}))
            assert await call.code() == grpc.StatusCode.INVALID_ARGUMENT

    asyncio.run(asyncio.wait_for(work(), PATIENCE_S))


def test_a_refused_stream_is_ended(tmp_path: Path) -> None:
    """Otherwise a client without a key could hold it."""

    async def work() -> None:
        async with picker_rig(tmp_path) as rig, connected(rig) as channel:
            call = opened(channel)
            await call.write(request("GET", "/flush_cache"))
            assert (await call.read()).immediate_response.status.code == 404
            assert await call.read() is grpc.aio.EOF
            assert streams_of(rig) == 0

    asyncio.run(asyncio.wait_for(work(), PATIENCE_S))


def test_one_connection_cannot_take_every_stream(tmp_path: Path) -> None:
    async def work() -> None:
        async with picker_rig(tmp_path, max_connections=8) as rig, connected(rig) as channel:
            held = [silent(channel) for _ in range(16)]
            await until(lambda: streams_of(rig) == 2)
            assert await picked(rig) == 200
            assert streams_of(rig) <= 3
            async with connected(rig) as another:
                assert await health_of(another, "readiness") == "SERVING"
            for each in held:
                each.cancel()

    asyncio.run(asyncio.wait_for(work(), PATIENCE_S))


def test_readiness_tells_that_no_stream_is_admitted(tmp_path: Path) -> None:
    async def work() -> None:
        async with picker_rig(tmp_path, max_connections=8) as rig:
            async with AsyncExitStack() as stack:
                channels = [await stack.enter_async_context(connected(rig)) for _ in range(4)]
                held = [silent(channel) for channel in channels for _ in range(2)]
                await until(lambda: streams_of(rig) == 8)
                assert await picked(rig) == grpc.StatusCode.RESOURCE_EXHAUSTED
                async with connected(rig) as another:
                    found = [await health_of(another, each) for each in ("liveness", "readiness", "")]
                assert found == ["SERVING", "NOT_SERVING", "NOT_SERVING"]
                assert rig.processor.readiness()["status"] == "not ready"
                for each in held:
                    each.cancel()
            await until(lambda: streams_of(rig) == 0)
            assert rig.processor.readiness() == {"status": "ready"}
            assert await picked(rig) == 200

    asyncio.run(asyncio.wait_for(work(), PATIENCE_S))


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/models", 200),
        ("GET", "/v1/models?limit=1", 200),
        ("GET", "/v1/%6dodels", 200),
        ("GET", "/v1/models/org%2fname", 200),
        ("GET", "/v1/models/../flush_cache", 404),
        ("GET", "/v1/models/%2e%2e/%2e%2e/flush_cache", 404),
        ("GET", "/v1/models/x%2f..%2f..%2fflush_cache", 404),
        ("GET", "/v1/models/..%5c..%5cflush_cache", 404),
        ("GET", "/v1/models/%252e%252e/flush_cache", 404),
        ("GET", "/v1/models/x%00", 404),
        ("POST", "/v1/models/x", 405),
        ("PUT", "/v1/models", 405),
    ],
)
def test_the_picker_and_the_router_read_a_path_alike(tmp_path: Path, method: str, path: str, status: int) -> None:
    async def work() -> None:
        async with picker_rig(tmp_path / "picker", "a", inject_cache_salt=True) as rig:
            assert await picked(rig, method, path) == status
        async with router_rig(tmp_path / "router", "a", inject_cache_salt=True) as router:
            assert (await ask(router.port, path, method=method)).status == status
            assert router.replica("a").requests == (status == 200)

    asyncio.run(asyncio.wait_for(work(), PATIENCE_S))
