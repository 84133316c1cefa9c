"""What engines report of themselves decides where requests go: their load in /metrics, their models in /v1/models."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from tests.fakes.raw_client import ask, chat
from tests.fakes.router_rig import router_rig
from tests.waiting import PATIENCE_S, until

from semgate.fleet.engine_load import TARGETS


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, PATIENCE_S))


def page(running: int, waiting: int) -> bytes:
    lines = (
        f'vllm:num_requests_running{{engine="0"}} {running}.0',
        f'vllm:num_requests_waiting{{engine="0"}} {waiting}.0',
        'vllm:kv_cache_usage_perc{engine="0"} 0.75',
        'vllm:request_prefill_kv_computed_tokens_sum{engine="0"} 40000.0',
        'vllm:request_prefill_kv_computed_tokens_count{engine="0"} 10.0',
    )
    return "\n".join(lines).encode() + b"\n"


def test_requests_avoid_a_replica_that_others_load(tmp_path: Path) -> None:
    async def work() -> None:
        async with router_rig(tmp_path, routing_policy="least_loaded", load_seconds=0.02) as rig:
            a, b = rig.replicas
            a.pages[TARGETS[0]] = page(8, 4)
            b.pages[TARGETS[0]] = page(0, 0)
            fleet = rig.gateway.roster.fleet
            await until(lambda: all(each.engine_load is not None for each in fleet))
            for _ in range(6):
                assert (await ask(rig.port, body=chat())).header("x-semantickv-replica") == "b"
            text = rig.gateway.metrics.text().decode()
            assert 'semgate_engine_waiting{replica="a"} 4.0' in text
            assert 'semgate_engine_foreign_requests{replica="a"} 12.0' in text
            assert 'semgate_engine_kv_usage{replica="a"} 0.75' in text
            a.pages[TARGETS[0]], b.pages[TARGETS[0]] = page(0, 0), page(30, 0)
            await until(lambda: [each.foreign_requests for each in fleet] == [0, 30])
            assert (await ask(rig.port, body=chat())).header("x-semantickv-replica") == "a"

    run(work())


def test_no_request_reaches_a_replica_of_another_model(tmp_path: Path) -> None:
    async def work() -> None:
        async with router_rig(tmp_path, "a", "b", "c", health_seconds=0.05) as rig:
            for each, models in zip(rig.replicas, (("base", "adapter"), ("base",), ("other",)), strict=True):
                each.models = models
            await until(lambda: rig.gateway.models.serving("other") == frozenset({"c"}))
            wanted = {"base": {"a", "b"}, "adapter": {"a"}, "other": {"c"}}
            for number in range(60):
                model = ("base", "adapter", "other")[number % 3]
                reply = await ask(rig.port, body=chat(model=model))
                assert reply.status == 200
                assert reply.header("x-semantickv-replica") in wanted[model]
            listed = json.loads((await ask(rig.port, "/v1/models", method="GET")).body)
            assert {entry["id"] for entry in listed["data"]} == set(wanted)

    run(work())
