"""Bodies of many small objects, sent at once to a real router process: how much memory it takes at most."""

from __future__ import annotations

import asyncio
import re
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

from scripts.engines.ports import free_port
from tests.fakes.fault_replica import FaultReplica
from tests.fakes.raw_client import ask

BODIES: Final = 16
LIMIT_MB: Final = 700
START_SECONDS: Final = 600.0
SRC: Final = Path(__file__).parents[2] / "src"


def large_body() -> bytes:
    """4.7 MB that a JSON decoder turns into 140 MB."""
    return b'{"model":"m","messages":[' + b",".join([b'{"a":[]}'] * 520_000) + b"]}"


async def peak_mb(folder: Path) -> tuple[int, int]:
    """The peak of the router's resident memory, and how many of the requests were answered."""
    folder.mkdir(parents=True, exist_ok=True)
    engine = FaultReplica(name="engine")
    await engine.start()
    port = free_port()
    with (folder / "printed").open("wb") as printed:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "semgate", "router", "--port", str(port), "--replicas", engine.origin),
            *("--routing-output-dir", str(folder / "routing")),
            stdout=printed,
            stderr=printed,
            env={"PYTHONPATH": str(SRC), "PATH": ""},
        )
    try:
        async with asyncio.timeout(START_SECONDS):
            while b"router started" not in (folder / "printed").read_bytes():
                assert process.returncode is None, (folder / "printed").read_text()
                await asyncio.sleep(0.1)
        body = large_body()
        replies = await asyncio.gather(*(ask(port, body=body) for _ in range(BODIES)), return_exceptions=True)
        status = Path(f"/proc/{process.pid}/status").read_text()
        found = re.search(r"VmHWM:\s+(\d+) kB", status)
        assert found is not None
        answered = sum(getattr(reply, "status", None) == 200 for reply in replies)
        return int(found.group(1)) // 1024, answered
    finally:
        with suppress(ProcessLookupError):
            process.terminate()
        await process.wait()
        await engine.die()
