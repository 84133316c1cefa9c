"""Anything may happen in any order, under the engine's own scheduler; after every step the books are compared."""

from __future__ import annotations

import tempfile
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.engines.vllm_inside.checks import (
    PublicBlocks,
    check_donors,
    check_exact_cache,
    check_faults,
    check_requests,
    check_rest,
    check_silence,
    check_sources,
)
from tests.engines.vllm_inside.world import World, make_world

pytestmark = pytest.mark.engine

DIRECTORY = Path(tempfile.mkdtemp(prefix="semblend-tiny-"))
PASSAGES = [np.random.default_rng(n).integers(3, 512, 66 + 13 * n).tolist() for n in range(6)]
pieces = st.one_of(
    st.integers(0, 5).map(lambda n: PASSAGES[n]),
    st.tuples(st.integers(0, 9), st.integers(3, 90)).map(
        lambda made: np.random.default_rng(100 + made[0]).integers(3, 512, made[1]).tolist()
    ),
)
prompts = st.lists(pieces, min_size=1, max_size=5).map(lambda parts: list(chain.from_iterable(parts)))


def faults_of(report: Any) -> set[str]:
    computed = {request_id for request_id, loaded in report.loaded.items() if loaded.fault}
    return {*report.load_faults, *report.capture_faults, *report.prefill_faults, *computed}


class Traffic(RuleBasedStateMachine):
    """Arrivals, steps, preemptions (the cache is small), aborts, faults, resets, request ids that come back."""

    world: World

    @initialize(
        ranks=st.sampled_from([1, 1, 2]),
        depth=st.sampled_from([1, 1, 2]),
        blocks=st.sampled_from([26, 60, 260]),
        host_tokens=st.sampled_from([1024, 1024, 128]),
        repair=st.sampled_from(["off", "idle", "likely"]),
    )
    def start(self, ranks: int, depth: int, blocks: int, host_tokens: int, repair: str) -> None:
        self.world = make_world(
            DIRECTORY, ranks=ranks, depth=depth, blocks=blocks, host_tokens=host_tokens, repair=repair
        )
        self.public = PublicBlocks()
        self.faulted: set[str] = set()

    @rule(
        name=st.integers(0, 7),
        prompt=prompts,
        outputs=st.integers(1, 40),
        salt=st.sampled_from([None, None, "x"]),
        hints=st.sampled_from([{}, {}, {}, {"reuse": False}, {"capture": False}]),
    )
    def arrive(self, name: int, prompt: list[int], outputs: int, salt: str | None, hints: dict[str, Any]) -> None:
        if f"r{name}" not in self.world.scheduler.requests:
            self.public.learn(self.world.add(f"r{name}", prompt, outputs, salt, **hints))

    @rule(steps=st.integers(1, 5))
    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.world.step()
            self.check()

    @rule(steps=st.integers(10, 60))
    def run_long(self, steps: int) -> None:
        for _ in range(steps):
            self.world.step()
        self.check()

    @rule(name=st.integers(0, 7))
    def abort(self, name: int) -> None:
        self.world.abort(f"r{name}")

    @rule(rank=st.integers(0, 1), where=st.sampled_from(["loads", "captures", "forward"]))
    def fault(self, rank: int, where: str) -> None:
        """The next step cannot read donors, or cannot read the engine's cache, or cannot compute, on one rank."""
        victim = self.world.ranks[rank % len(self.world.ranks)]
        victim.fail_loads = where == "loads"
        victim.cache.fail_reads = where == "captures"
        # With several ranks a fault in the forward ends the engine: see WorkerHalf.
        victim.forward.fails = where == "forward" and len(self.world.ranks) == 1
        before = len(self.world.reports)
        self.world.step()
        self.world.flush()
        for report in self.world.reports[before:]:
            self.faulted |= faults_of(report)

    @rule(running=st.booleans())
    def reset(self, running: bool) -> None:
        self.world.flush()
        waits = self.world.half.has_waiting_blocks
        self.world.scheduler.reset_prefix_cache(reset_running_requests=running and not waits, reset_connector=True)

    def check(self) -> None:
        check_donors(self.world)
        check_faults(self.world)
        check_sources(self.world)
        if not self.world.pending:
            check_requests(self.world)
        check_exact_cache(self.world, self.public)
        check_silence(self.world, self.public)
        for report in self.world.reports:
            assert not faults_of(report) - self.faulted, f"a fault that was not injected: {report}"

    @invariant()
    @precondition(lambda self: hasattr(self, "world"))
    def no_hidden_fault(self) -> None:
        check_faults(self.world)

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.drain(2000)
            self.check()
            check_rest(self.world)
            self.world.pool.shutdown()


TestTraffic = pytest.mark.engine(Traffic.TestCase)
# Shrinking a traffic of hundreds of steps takes minutes; a failure prints its steps as they are.
TestTraffic.settings = settings(max_examples=40, stateful_step_count=25, phases=(Phase.explicit, Phase.generate))
