"""Bodies of many small objects, sent at once to a real router process: how much memory it takes at most."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

from scripts.engines.ports import free_port
from tests.attacks.processes import PEAK, memory_mb, running
from tests.fakes.fault_replica import FaultReplica
from tests.fakes.raw_client import ask

BODIES: Final = 16
LIMIT_MB: Final = 700


def large_body() -> bytes:
    """4.7 MB that a JSON decoder turns into 140 MB."""
    return b'{"model":"m","messages":[' + b",".join([b'{"a":[]}'] * 520_000) + b"]}"


async def peak_mb(folder: Path) -> tuple[int, int]:
    """The peak of the router's resident memory, and how many of the requests were answered."""
    engine = FaultReplica(name="engine")
    await engine.start()
    port = free_port()
    words = ("semgate", "router", "--port", str(port), "--replicas", engine.origin)
    try:
        async with running(folder, {"router": port}, *words, "--routing-output-dir", str(folder / "routing")) as pid:
            body = large_body()
            replies = await asyncio.gather(*(ask(port, body=body) for _ in range(BODIES)), return_exceptions=True)
            answered = sum(getattr(reply, "status", None) == 200 for reply in replies)
            return memory_mb(pid, PEAK), answered
    finally:
        await engine.die()
