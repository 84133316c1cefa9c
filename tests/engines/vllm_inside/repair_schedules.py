"""Random schedules of agent sessions with prefix breaks: arrivals, aborts, preemptions, faults and resets at any point.

Run as a program it plays many of them and prints what they covered; tests play a few.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from random import Random

from tests.engines.vllm_inside.agent_sessions import Session, act
from tests.engines.vllm_inside.checks import (
    PublicBlocks,
    check_donors,
    check_exact_cache,
    check_requests,
    check_rest,
    check_silence,
)
from tests.engines.vllm_inside.world import World, make_world

DIRECTORY = Path(tempfile.mkdtemp(prefix="semblend-tiny-"))
STEPS = 160
MAX_FAILURES = 20


def play(seed: int, counted: Counter[str], *, every: int = 40) -> None:
    """One schedule. Raises AssertionError where a block under a public hash is not exact, or something is left over."""
    draws = Random(seed)
    world = make_world(
        DIRECTORY,
        ranks=draws.choice([1, 1, 1, 2]),
        depth=draws.choice([1, 2]),
        blocks=draws.choice([34, 40, 60, 120]),
        host_tokens=draws.choice([1024, 4096]),
        repair=draws.choice(["idle", "likely", "likely"]),
    )
    public = PublicBlocks()
    sessions = [Session(draws, seed * 7 + n) for n in range(draws.randrange(1, 4))]
    for step in range(STEPS):
        for request in act(world, draws, sessions, counted, step):
            public.learn(request)
        world.step()
        if step % every == every - 1:
            _check(world, public)
    world.flush()
    world.drain(4000)
    _check(world, public)
    check_rest(world)
    world.pool.shutdown()
    counted["schedules"] += 1
    counted["repaired slices"] += sum(len(report.repaired) for report in world.reports)
    counted["blended"] += sum(len(report.loaded) for report in world.reports)
    counted["failed slices"] += sum(len(report.repair_faults) for report in world.reports)
    counted["claims neither loaded nor computed"] += sum(len(report.load_faults) for report in world.reports)
    counted["repaired tokens"] += sum(sum(report.repaired.values()) for report in world.reports)


def _check(world: World, public: PublicBlocks) -> None:
    check_exact_cache(world, public)
    check_silence(world, public)
    check_donors(world)
    if not world.pending:
        check_requests(world)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--schedules", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    arguments = parser.parse_args()
    logging.disable(logging.ERROR)  # a line per request, and a traceback per injected fault
    counted: Counter[str] = Counter()
    failed: list[str] = []
    started = time.monotonic()
    for done, seed in enumerate(range(arguments.first, arguments.first + arguments.schedules), start=1):
        try:
            play(seed, counted)
        except AssertionError as error:
            failed.append(f"schedule {seed}: {error}")
            print(failed[-1], file=sys.stderr, flush=True)
        if len(failed) == MAX_FAILURES:
            break
        if done % 100 == 0:
            left = (time.monotonic() - started) / done * (arguments.schedules - done)
            print(f"{done} of {arguments.schedules} schedules, {left / 60:.0f} minutes left", file=sys.stderr)
            print(_coverage(counted), file=sys.stderr, flush=True)
    print(_coverage(counted))
    if failed:
        raise SystemExit("\n".join(failed))
    print("0 inexact blocks under a public hash, nothing held at the end of any schedule")


def _coverage(counted: Counter[str]) -> str:
    return ", ".join(f"{count} {what}" for what, count in counted.items())


if __name__ == "__main__":
    main()
