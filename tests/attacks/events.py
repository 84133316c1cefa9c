"""Messages that no engine sends, from a real ZeroMQ publisher to a real router process that follows it.

Each comes twice: as it is published, and from the replay buffer, where a lost message is requested from. Around it the
publisher announces blocks; the router must hold exactly those, answer its probes, and stay small.
"""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
from scripts.engines.ports import free_port
from tests.fakes.fault_replica import FaultReplica
from tests.fakes.kv_publisher import KvPublisher
from tests.fakes.raw_client import ask

from semgate.events.wire import BlockStored

LIMIT_MB: Final = 400
START_SECONDS: Final = 600.0  # these only end a hang
REACT_SECONDS: Final = 300.0
BLOCKS: Final = 10  # of one good message
SRC: Final = Path(__file__).parents[2] / "src"
MANY: Final = 8 << 20
EMPTY_MAPS: Final = b"\xdd" + MANY.to_bytes(4, "big") + b"\x80" * MANY


def _batch(events: bytes) -> bytes:
    return b"\x93\xcb?\xf0\0\0\0\0\0\0" + events + b"\x00"


def _stored(**fields: bytes) -> bytes:
    whole = {"block_hashes": b"\x91\x01", "parent_block_hash": b"\xc0", "token_ids": b"\x91\x01", "block_size": b"\x01"}
    raw = {"type": msgspec.msgpack.encode("BlockStored")} | whole | fields
    return _batch(b"\x91" + msgspec.msgpack.encode({name: msgspec.Raw(value) for name, value in raw.items()}))


MESSAGES: Final[Mapping[str, bytes]] = {
    "event: a key that is not UTF-8": _batch(b"\x91\x81\xa4ty\xffe\xa1x"),
    "event: a name that is not UTF-8": _stored(lora_name=b"\xa2n\xff"),
    "event: blocks of 2^63 tokens": _stored(block_hashes=b"\x90", token_ids=b"\x90", block_size=b"\xcf\x80" + bytes(7)),
    "event: 8 MiB of empty maps": _batch(EMPTY_MAPS),
    "event: 8 MiB of maps in one event": _batch(b"\x91" + EMPTY_MAPS),
    "event: 8 MiB of maps as extra keys": _stored(extra_keys=EMPTY_MAPS),
    "event: 8 MiB of maps as token ids": _stored(token_ids=EMPTY_MAPS),
}


@dataclass(frozen=True, slots=True)
class Found:
    """``blocks`` of ``announced`` that the router holds in the end, and how many messages it counted as unreadable."""

    blocks: int
    announced: int
    unreadable: int
    deaths: int
    probes: int
    peak_mb: int

    @property
    def is_harmless(self) -> bool:
        is_whole = self.blocks == self.announced and self.deaths == 0
        return is_whole and self.unreadable == 2 and self.probes > 0 and self.peak_mb < LIMIT_MB

    def __str__(self) -> str:
        return (
            f"{self.blocks} of {self.announced} blocks, {self.unreadable} of 2 counted, {self.deaths} deaths, "
            f"{self.probes} probes answered, peak {self.peak_mb} MB (below {LIMIT_MB})"
        )


async def sent_to_a_router(payload: bytes, folder: Path) -> Found:
    engine = FaultReplica(name="engine")
    await engine.start()
    try:
        async with KvPublisher() as publisher, _router(engine, publisher, folder) as router:
            await publisher.subscribed()
            announced = await _announce(publisher, 0)
            await router.holds(announced)
            probing = asyncio.create_task(router.probe())
            await publisher.publish_payload(payload)
            announced += await _announce(publisher, announced)
            await router.holds(announced)
            await publisher.publish_payload(payload, lost=True)
            announced += await _announce(publisher, announced)
            await router.holds(announced)
            probing.cancel()
            return Found(
                blocks=await router.number("semgate_index_blocks"),
                announced=announced,
                unreadable=await router.number("semgate_events_unreadable_total"),
                deaths=await router.number("semgate_events_deaths_total"),
                probes=router.probes,
                peak_mb=router.peak_mb(),
            )
    finally:
        await engine.die()


async def _announce(publisher: KvPublisher, first: int) -> int:
    """One good message; returns its blocks."""
    numbers = list(range(first + 1, first + 1 + BLOCKS))
    await publisher.publish([BlockStored([*numbers], None, [first, *numbers[1:]], 1)])
    return BLOCKS


class _Router:
    def __init__(self, pid: int, status_port: int) -> None:
        self.probes = 0
        self._pid = pid
        self._status_port = status_port

    async def number(self, metric: str) -> int:
        text = (await ask(self._status_port, "/metrics", method="GET")).body.decode()
        found = re.search(rf"^{metric}\{{[^}}]*\}} (\S+)", text, re.MULTILINE)
        return int(float(found.group(1))) if found else -1

    async def holds(self, blocks: int) -> None:
        """Returns when it does, or after ``REACT_SECONDS``."""
        with suppress(TimeoutError):
            async with asyncio.timeout(REACT_SECONDS):
                while await self.number("semgate_index_blocks") != blocks:
                    if await self.number("semgate_events_deaths_total") > 0:
                        return
                    await asyncio.sleep(0.05)

    async def probe(self) -> None:
        while True:
            self.probes += (await ask(self._status_port, "/healthz", method="GET")).status == 200
            await asyncio.sleep(0.05)

    def peak_mb(self) -> int:
        found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{self._pid}/status").read_text())
        assert found is not None
        return int(found.group(1)) // 1024


@asynccontextmanager
async def _router(engine: FaultReplica, publisher: KvPublisher, folder: Path) -> AsyncIterator[_Router]:
    folder.mkdir(parents=True, exist_ok=True)
    status_port = free_port()
    replica = f"{engine.origin};name=e;events={publisher.endpoint};replay={publisher.replay_endpoint}"
    with (folder / "printed").open("wb") as printed:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "semgate", "router", "--port", str(free_port()), "--status-port", str(status_port)),
            *("--replicas", replica, "--routing-policy", "precise_prefix", "--routing-output-dir", str(folder / "r")),
            stdout=printed,
            stderr=printed,
            env={"PYTHONPATH": str(SRC), "PATH": ""},
        )
    try:
        async with asyncio.timeout(START_SECONDS):
            while b"router started" not in (folder / "printed").read_bytes():
                assert process.returncode is None, (folder / "printed").read_text()
                await asyncio.sleep(0.1)
        yield _Router(process.pid, status_port)
    finally:
        with suppress(ProcessLookupError):
            process.terminate()
        await process.wait()
