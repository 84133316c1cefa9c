"""Requests to a router: where each policy places them on fixed evidence, and the record a running router keeps."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
from tests.fakes.kv_publisher import BLOCK, EnginePool, KvPublisher
from tests.fakes.raw_client import ask
from tests.fakes.router_rig import Rig, router_rig
from tests.golden.compare import as_json, as_lines
from tests.waiting import PATIENCE_S, until

from semgate.placement import PlacementRequest, Placer, ReplicaView
from semgate.placement.view import Content
from semgate.router.state.decisions import DecisionRecord

POLICIES: Final = (
    "round_robin",
    "least_loaded",
    "prefix_hash",
    "semantic_locality",
    "precise_prefix",
    "semantic_placement",
)
REQUESTS: Final = 40
REPLICAS: Final = 5
# Not what a clock decides, such as the times that reasons name.
KEPT_FIELDS: Final = (
    "path",
    "stream",
    "replica",
    "route",
    "policy",
    "exact_blocks",
    "prompt_blocks",
    "donor_tokens",
    "outcome",
    "status",
)


def placed() -> dict[str, str]:
    """Every policy on the same requests and evidence."""
    return {f"route/{policy}.txt": as_lines([*_placements(policy)]) for policy in POLICIES}


def _placements(policy: str) -> Iterator[str]:
    now_s = [0.0]
    placer = Placer(policy, clock_s=lambda: now_s[0])
    draws = np.random.default_rng(5)
    for number in range(REQUESTS):
        now_s[0] += 1.0
        fleet = _fleet(draws)
        request = _request(draws, number)
        decision = placer.decide(request, fleet)
        yield (
            f"{number:2}: {request.prompt_tokens} tokens to {decision.replica}, {decision.path}: "
            f"{decision.exact_blocks} blocks, {decision.donor_tokens} donor tokens, "
            f"{decision.expected_tokens} expected; {decision.reason}"
        )


def _fleet(draws: np.random.Generator) -> list[ReplicaView]:
    """One of the five is draining, the load of the others changes from request to request."""
    return [
        ReplicaView(
            f"replica-{slot}",
            slot,
            "draining" if slot == 3 else "ready",
            int(draws.integers(0, 6)),
            int(draws.integers(0, 5)) * 500,
        )
        for slot in range(REPLICAS)
    ]


def _request(draws: np.random.Generator, number: int) -> PlacementRequest:
    """A third has announced blocks, a third donors, a third neither; sessions come back."""
    blocks = int(draws.integers(20, 200))
    exact, donors = np.zeros(REPLICAS, np.int32), np.zeros(REPLICAS, np.int32)
    if number % 3 == 0:
        exact[draws.integers(0, REPLICAS)] = blocks * 3 // 4
        exact[draws.integers(0, REPLICAS)] = blocks // 3
    elif number % 3 == 1:
        donors[draws.integers(0, REPLICAS)] = blocks * 12
    text = int(draws.integers(1, 5))
    return PlacementRequest(
        16 * blocks,
        keys=np.arange(text << 32, (text << 32) + blocks, dtype=np.uint64),
        exact_blocks=exact,
        donor_tokens=donors,
        content=(Content(text, 1, 8 * blocks), Content(100 + number, 2, 8 * blocks)),
        tenant=f"tenant-{number % 2}",
        session=f"session-{number % 7}" if number % 2 else None,
    )


def recorded(folder: Path) -> dict[str, str]:
    """A running router in front of two engines that announce their blocks: what it writes about each request."""
    return {"route/records.json": as_json(asyncio.run(asyncio.wait_for(_recorded(folder), 4 * PATIENCE_S)))}


async def _recorded(folder: Path) -> list[dict[str, Any]]:
    prompts = [list(range(start, start + 16 * BLOCK)) for start in (100, 300, 500)]
    async with KvPublisher() as first, KvPublisher() as second:
        announced = {
            name: f";events={each.endpoint};replay={each.replay_endpoint}"
            for name, each in (("a", first), ("b", second))
        }
        options: dict[str, Any] = {"routing_policy": "precise_prefix", "block_tokens": BLOCK}
        async with router_rig(folder, announced=announced, **options) as rig:
            await first.subscribed()
            await second.subscribed()
            await first.publish(EnginePool().store(prompts[0]))
            await second.publish(EnginePool().store(prompts[1]))
            await _indexed(rig, "a", 16)
            await _indexed(rig, "b", 16)
            records = []
            for prompt in (prompts[0], prompts[1], prompts[0][: 8 * BLOCK], [*prompts[1], *prompts[2]]):
                records.append(await _record_of(rig, {"prompt": prompt, "stream": True}))
            records.append(await _record_of(rig, {"prompt": prompts[0], "stream": False}))
            rig.replica("b").mode = "die_on_request"
            return [*records, await _record_of(rig, {"prompt": prompts[1], "stream": True})]


async def _record_of(rig: Rig, body: dict[str, Any]) -> dict[str, Any]:
    await ask(rig.port, "/v1/completions", {"model": "m", **body})
    record: DecisionRecord = rig.gateway.ring.latest(1)[0]
    attempts = [{"replica": each.replica, "status": each.status, "fault": each.fault} for each in record.attempts]
    return {**{name: getattr(record, name) for name in KEPT_FIELDS}, "attempts": attempts}


async def _indexed(rig: Rig, replica: str, blocks: int) -> None:
    line = f'semgate_index_blocks{{replica="{replica}"}} {float(blocks)}'.encode()
    await until(lambda: line in rig.gateway.metrics.text())
