"""Runs the attacks on our servers on this machine and prints what happened, as a table. Exit 1: one worked.

In: nothing but loopback. Bounded and self-ending; fronts that are not installed are listed as skipped.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Final

from tests.attacks import events, hostile, memory, requests, without_key
from tests.attacks.fronts import FRONTS, FrontAbsentError, in_front_of
from tests.attacks.processes import SERVED
from tests.attacks.targets import TARGETS
from tests.attacks.upgrade import SAFE, VARIANTS, jdk_request, send, verdict

Row = tuple[str, str, str, bool | None]  # attack, where, what happened, whether it was stopped (None: skipped)


async def smuggling(folder: Path) -> AsyncIterator[Row]:
    for target, opened in TARGETS.items():
        for number, front in enumerate(FRONTS):
            where = f"{target}, {front}"
            place = folder / target / str(number)
            try:
                async with opened(place) as gate, in_front_of(front, gate.port, place / "front") as port:
                    for variant in VARIANTS:
                        await send(port, variant)
                        found = verdict(variant, gate.seen())
                        yield f"upgrade: {variant.name}", where, found, found in SAFE
                    status = (await send(port, jdk_request())).partition(b"\r\n")[0].decode("latin-1")
                    yield "not an attack: Java's client", where, status, " 200 " in status and len(gate.seen()) == 1
            except FrontAbsentError as absent:
                yield "upgrade: all variants", where, f"skipped: {absent}", None


async def http(folder: Path) -> AsyncIterator[Row]:
    for target, opened in TARGETS.items():
        async with opened(folder / target) as gate:
            for each in hostile.REQUESTS:
                status, closed = await hostile.send(gate.port, each)
                reached = len(gate.seen())
                right = status in each.statuses and reached == each.reaches and closed == each.closed
                yield each.name, target, f"{status}, {'closed' if closed else 'open'}, {reached} at the engine", right


async def parsed_bodies(folder: Path) -> AsyncIterator[Row]:
    peak, answered = await memory.peak_mb(folder)
    found = f"peak {peak} MB (below {memory.LIMIT_MB}), {answered} answered"
    yield f"{memory.BODIES} x 4.7 MB of small objects", "router", found, peak < memory.LIMIT_MB


async def event_streams(folder: Path) -> AsyncIterator[Row]:
    for number, (name, payload) in enumerate(events.MESSAGES.items()):
        found = await events.sent_to_a_router(payload, folder / str(number))
        yield name, "router", str(found), found.is_harmless


async def unauthenticated(folder: Path) -> AsyncIterator[Row]:
    for name, served in SERVED.items():
        async with served(folder / name) as process:
            for listener in process.ports:
                for attack in without_key.HELD:
                    found = await without_key.held(process, listener, attack)
                    yield attack, listener, str(found), found.stopped


async def departures(folder: Path) -> AsyncIterator[Row]:
    for target, opened in TARGETS.items():
        async with opened(folder / target) as gate:
            seen = await without_key.is_departure_seen(gate)
            yield "a disconnect behind a request ahead", target, "seen" if seen else "not seen by the engine", seen


async def bodies(folder: Path) -> AsyncIterator[Row]:
    for salted, where in ((True, "router, salts on"), (False, "router")):
        async for name, status, reached in requests.refused(folder / str(salted), salted=salted):
            yield name, where, f"{status}, {reached} at the engine", (status, reached) == (400, 0)
    lost = await requests.refused_to_others(folder / "held")
    found = f"{lost} of {requests.ASKED} requests of another tenant got 503"
    yield f"{requests.HELD} unfinished bodies of 32 MB", "router", found, lost == 0


ATTACKS: Final[Mapping[str, Callable[[Path], AsyncIterator[Row]]]] = {
    "smuggling": smuggling,
    "http": http,
    "memory": parsed_bodies,
    "events": event_streams,
    "without-key": unauthenticated,
    "departures": departures,
    "bodies": bodies,
}


async def _run(names: list[str]) -> int:
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            print(f"\n{name}\n{'attack':<40}{'where':<34}{'':<10}what happened", flush=True)
            async for attack, where, found, stopped in ATTACKS[name](Path(folder) / name):
                word = "skipped" if stopped is None else "ok" if stopped else "WORKED"
                failed += stopped is False
                print(f"{attack:<40}{where:<34}{word:<10}{found}", flush=True)
    print(f"\n{failed} attacks worked")
    return 1 if failed else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.attacks", description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("names", nargs="*", metavar="ATTACK", help=f"default: all of {', '.join(ATTACKS)}")
    names = parser.parse_args().names
    if unknown := sorted(set(names) - set(ATTACKS)):
        print(f"unknown attack {unknown[0]}; known: {', '.join(ATTACKS)}", file=sys.stderr)
        return 2
    return asyncio.run(_run(names or list(ATTACKS)))


if __name__ == "__main__":
    raise SystemExit(main())
