"""One brain: the picker behind a real Envoy chooses the replica that the router chooses, request by request."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("grpc", reason="needs the extra picker")

from tests.fakes.picker_rig import Door, PickerRig, envoy_before, needs_envoy, picker_rig
from tests.fakes.raw_client import ask
from tests.fakes.router_rig import Rig, router_rig
from tests.waiting import PATIENCE_S, until

pytestmark = needs_envoy
NAMES = ("a", "b", "c", "d")
REQUESTS = 150


def trace(requests: int, seed: int = 1) -> Iterator[tuple[dict[str, Any], dict[str, str]]]:
    """Conversations of several tenants that grow turn by turn, on shared system prompts; some return, some end."""
    chance = random.Random(seed)
    systems = [" ".join(chance.choices(["alpha", "beta", "gamma", "delta", "epsilon"], k=300)) for _ in range(5)]
    open_sessions: list[tuple[str, str, list[dict[str, str]]]] = []
    for number in range(requests):
        if not open_sessions or chance.random() < 0.25:
            system = {"role": "system", "content": chance.choice(systems)}
            open_sessions.append((f"key-{chance.randrange(3)}", f"session-{number}", [system]))
        key, session, messages = chance.choice(open_sessions[-8:])
        messages.append({"role": "user", "content": " ".join(str(chance.randrange(10**6)) for _ in range(60))})
        headers = {"authorization": f"Bearer {key}"}
        if chance.random() < 0.5:
            headers["x-session-id"] = session
        yield {"model": "m", "stream": True, "messages": list(messages)}, headers
        messages.append({"role": "assistant", "content": f"answer {number}"})


async def placed(rig: Rig | PickerRig, requests: int) -> list[str | None]:
    """One at a time, at a fixed price of prefill: load and a learned price would depend on the clock."""
    rig.gateway.placer._learner = None
    found: list[str | None] = []
    for body, headers in trace(requests):
        reply = await ask(rig.port, "/v1/chat/completions", body, headers=headers)
        assert (reply.status, reply.complete) == (200, True)
        await until(lambda: all(each.in_flight == 0 for each in rig.gateway.roster.fleet))
        found.append(rig.gateway.ring.latest(1)[0].replica)
    return found


async def agreement(folder: Path, door: Door, policy: str, requests: int) -> float:
    """Fraction of equal choices."""
    async with router_rig(folder / "router", *NAMES, routing_policy=policy) as router:
        by_router = await placed(router, requests)
    async with (
        picker_rig(folder / "picker", *NAMES, routing_policy=policy) as rig,
        envoy_before(rig, door, folder / "envoy"),
    ):
        by_picker = await placed(rig, requests)
        assert sorted(rig.seen()) == sorted(each for each in by_picker if each), "and Envoy sent them there"
    assert len(set(by_router)) > 1, "a trace that one replica serves would prove nothing"
    return sum(map(str.__eq__, map(str, by_router), map(str, by_picker))) / requests


@pytest.mark.parametrize("door", ["full duplex", "cheap"])
def test_the_picker_chooses_as_the_router_does(tmp_path: Path, door: Door) -> None:
    work = agreement(tmp_path, door, "semantic_locality", REQUESTS)
    assert asyncio.run(asyncio.wait_for(work, 4 * PATIENCE_S)) >= 0.99


@pytest.mark.load
@pytest.mark.parametrize("door", ["full duplex", "cheap"])
def test_the_picker_chooses_as_the_router_does_on_a_long_trace(tmp_path: Path, door: Door) -> None:
    equal = asyncio.run(asyncio.wait_for(agreement(tmp_path, door, "semantic_locality", 2_000), 4 * PATIENCE_S))
    print(f"{door}: {equal:.2%} of 2,000 choices are the router's")
    assert equal >= 0.99
