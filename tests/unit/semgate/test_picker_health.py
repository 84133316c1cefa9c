"""The gRPC health service of the picker, over a real channel."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.waiting import PATIENCE_S

pytest.importorskip("grpc", reason="needs the extra picker")

import grpc.aio
from tests.fakes.picker_rig import PickerRig, picker_rig


async def status_of(rig: PickerRig, service: str) -> str:
    from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse

    async with grpc.aio.insecure_channel(f"127.0.0.1:{rig.picker_port}") as channel:
        check = channel.unary_unary(
            "/grpc.health.v1.Health/Check", HealthCheckRequest.SerializeToString, HealthCheckResponse.FromString
        )
        try:
            answer = await check(HealthCheckRequest(service=service), timeout=120.0)
        except grpc.aio.AioRpcError as error:
            return str(error.code().name)
        return str(HealthCheckResponse.ServingStatus.Name(answer.status))


def test_alive_always_and_ready_as_the_fleet_is(tmp_path: Path) -> None:
    async def work() -> None:
        async with picker_rig(tmp_path) as rig:
            services = ("liveness", "readiness", "envoy.service.ext_proc.v3.ExternalProcessor", "")
            assert [await status_of(rig, each) for each in services] == ["SERVING"] * 4
            assert await status_of(rig, "another") == "NOT_FOUND"
            for name in ("a", "b"):
                rig.gateway.roster.set_draining(name, draining=True)
            assert [await status_of(rig, each) for each in services] == ["SERVING"] + ["NOT_SERVING"] * 3

    asyncio.run(asyncio.wait_for(work(), PATIENCE_S))
