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
from typing import Any

import numpy as np
from tests.engines.vllm_inside.checks import (
    PublicBlocks,
    check_donors,
    check_exact_cache,
    check_requests,
    check_rest,
    check_silence,
)
from tests.engines.vllm_inside.world import World, make_world, sequence

DIRECTORY = Path(tempfile.mkdtemp(prefix="semblend-tiny-"))
STEPS = 160


def text(seed: int, tokens: int) -> list[int]:
    return [int(token) for token in np.random.default_rng(seed).integers(3, 512, tokens)]


class Session:
    """A conversation that grows by its answers; now and then something changes in its head."""

    def __init__(self, random: Random, number: int) -> None:
        self.random = random
        self.salt = random.choice([None, None, "x"])
        self.head = text(1000 + number, random.randrange(8, 70))
        self.history = text(number % 3, random.randrange(150, 420))
        self.waits_for: Any = None
        self.broken = 0

    def next_prompt(self) -> list[int]:
        if self.random.random() < 0.5:
            place = self.random.randrange(len(self.head))
            self.head[place] = self.random.randrange(3, 512)
            self.broken += 1
        return self.head + self.history

    def hear(self, request: Any) -> None:
        """The answer becomes history, and a new message follows it."""
        answered = sequence(request, request.num_tokens)[len(self.head) :]
        self.history = (answered + text(self.random.randrange(10**6), self.random.randrange(4, 40)))[-600:]


def play(seed: int, counted: Counter[str], *, every: int = 40) -> None:
    """One schedule. Raises AssertionError where a block under a public hash is not exact, or something is left over."""
    random = Random(seed)
    world = make_world(
        DIRECTORY,
        ranks=random.choice([1, 1, 1, 2]),
        depth=random.choice([1, 2]),
        blocks=random.choice([34, 40, 60, 120]),
        host_tokens=random.choice([1024, 4096]),
        repair=random.choice(["idle", "likely", "likely"]),
    )
    public = PublicBlocks()
    sessions = [Session(random, seed * 7 + n) for n in range(random.randrange(1, 4))]
    for step in range(STEPS):
        _act(world, random, sessions, public, counted, step)
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
    counted["repaired tokens"] += sum(sum(report.repaired.values()) for report in world.reports)


def _act(
    world: World, random: Random, sessions: list[Session], public: PublicBlocks, counted: Counter[str], step: int
) -> None:
    for number, session in enumerate(sessions):
        asked = session.waits_for
        if asked is not None and asked.is_finished():
            counted["preemptions"] += asked.num_preemptions
            session.hear(asked)
            session.waits_for = asked = None
        name = f"s{number}"
        if asked is None and name not in world.scheduler.requests and random.random() < 0.12:
            session.waits_for = world.add(name, session.next_prompt(), random.randrange(1, 30), session.salt)
            public.learn(session.waits_for)
    chance = random.random()
    if chance < 0.01:
        world.abort(f"s{random.randrange(len(sessions))}")
        counted["aborts"] += 1
    elif chance < 0.02:
        victim = random.choice(world.ranks)
        victim.fail_loads = random.random() < 0.5
        victim.cache.fail_reads = random.random() < 0.3
        victim.forward.fails = not victim.fail_loads and len(world.ranks) == 1
        counted["faults"] += 1
    elif chance < 0.024:
        world.flush()
        running = random.random() < 0.5 and not world.half.has_waiting_blocks
        world.scheduler.reset_prefix_cache(reset_running_requests=running, reset_connector=True)
        counted["resets"] += 1
    elif chance < 0.03:
        name = f"x{step}"
        public.learn(world.add(name, text(step, random.randrange(300, 900)), 3))  # pressure
        counted["large neighbours"] += 1


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
    started = time.monotonic()
    for done, seed in enumerate(range(arguments.first, arguments.first + arguments.schedules), start=1):
        try:
            play(seed, counted)
        except AssertionError as error:
            raise SystemExit(f"schedule {seed}: {error}") from error
        if done % 100 == 0:
            left = (time.monotonic() - started) / done * (arguments.schedules - done)
            print(
                f"{done} of {arguments.schedules} schedules, {left / 60:.0f} minutes left", file=sys.stderr, flush=True
            )
    print(", ".join(f"{count} {what}" for what, count in counted.items()))
    print("0 inexact blocks under a public hash, nothing held at the end of any schedule")


if __name__ == "__main__":
    main()
