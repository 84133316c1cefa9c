"""Time on the scheduler's thread that a look-up takes in the vLLM adapter, by prompt length and number of donors.

Run by vLLM's interpreter: ``.engines/vllm/bin/python -m benchmarks.vllm.look_up``. The real scheduler half and planner
answer the engine's call ``get_num_new_matched_tokens``; donors have 2,048 tokens, and about nine tenths of every prompt
are stretches of them. *Inline* makes every look-up inside the call, *thread* is what is served: long prompts are looked
up on a thread of their own, and the engine asks again. Wall time is that of each single call; CPU time is the calling
thread's own, which a busy machine does not change.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import numpy as np

from benchmarks.planner.tokens import ZipfSource
from benchmarks.vllm.servers import OPEN_GATES
from semblend.contract import Namespace
from semblend.integration.vllm import open_claims, scheduler_half
from semblend.integration.vllm.look_up import Capabilities
from semblend.integration.vllm.look_up_thread import MAX_INLINE_TOKENS
from semblend.integration.vllm.options import parse_options
from semblend.integration.vllm.scheduler_half import SchedulerHalf
from semblend.pipeline.planner import Planner
from semblend.settings import Settings

BLOCK = 16
LIMIT_MS = 0.5
_BATCH = 500
_OPEN = {**OPEN_GATES, "recompute_fraction": 0.0, "refresh_on_repeat": False}


@dataclass
class Calls:
    """Milliseconds of each call."""

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    claims: int = 0

    def row(self) -> str:
        shown = [f"{np.percentile(times, part):8.3f}" for times in (self.wall, self.cpu) for part in (50, 99)]
        return f"{len(self.wall):6d} {self.claims:6d} {' '.join(shown)}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.vllm.look_up", description=__doc__)
    parser.add_argument("--donors", nargs="+", type=int, default=[1_000, 100_000])
    parser.add_argument("--tokens", nargs="+", type=int, default=[1_024, 4_096, 32_768])
    parser.add_argument("--n", type=int, default=300, help="prompts per row")
    arguments = parser.parse_args()
    Planner.warm_up()
    print("   donors  tokens mode     calls claims  wall p50 wall p99  cpu p50  cpu p99  ms", flush=True)
    missed = 0
    for donors in sorted(arguments.donors):
        source = ZipfSource()
        planner = _filled(source, donors)
        for tokens in arguments.tokens:
            for mode, limit in (("inline", sys.maxsize), ("thread", MAX_INLINE_TOKENS)):
                calls = _measure(planner, source, donors, tokens, arguments.n, limit)
                print(f"{donors:9d} {tokens:7d} {mode:6s} {calls.row()}", flush=True)
                missed += mode == "thread" and float(np.percentile(calls.cpu, 99)) > LIMIT_MS
        planner.close()
    print(f"rows with a p99 of CPU time above {LIMIT_MS} ms: {missed}")
    return 0


def _filled(source: ZipfSource, donors: int) -> Planner:
    options = parse_options(_OPEN)
    planner = Planner(settings=Settings(embedder="none"), gates=options.gates, budget_bytes=16 << 30)
    for start in range(0, donors, _BATCH):
        for number, row in enumerate(source.donors(start, min(donors, start + _BATCH)), start):
            planner.register(str(number), row, _namespace())
    return planner


def _namespace() -> Namespace:
    return Namespace(tenant="bench", model="bench")


def _measure(planner: Planner, source: ZipfSource, donors: int, tokens: int, n: int, inline_tokens: int) -> Calls:
    can = Capabilities("", True, 1, BLOCK, BLOCK, 65_536, 1)
    half = SchedulerHalf(parse_options(_OPEN), planner, None, _namespace(), can, lambda _: None)
    calls = Calls()
    with (
        mock.patch.object(open_claims, "MAX_INLINE_TOKENS", inline_tokens),
        mock.patch.object(scheduler_half, "request_namespace", return_value=_namespace()),
    ):
        for number in range(n):
            request = _request(number, _prompt(source, donors, tokens, number))
            half.arrived(request)
            claimed = None
            while claimed is None:
                wall, cpu = time.perf_counter(), time.thread_time()
                claimed = half.matched_tokens(request, 0)
                calls.cpu.append((time.thread_time() - cpu) * 1e3)
                calls.wall.append((time.perf_counter() - wall) * 1e3)
                pending = half._records[request.request_id].pending
                if pending is not None:
                    pending.ready.wait()  # an engine would carry out a step
            calls.claims += bool(claimed)
            half.finished(request, [])
            half._claims.end_pass()
    half.close()
    return calls


def _prompt(source: ZipfSource, donors: int, tokens: int, number: int) -> list[int]:
    chosen = np.random.default_rng(number)
    parts, length = [source.fresh(number, 64)], 64
    while length < tokens:
        donor = int(chosen.integers(donors))
        taken = source.donors(donor, donor + 1)[0][200 : 200 + int(chosen.integers(300, 1_500))]
        parts += [taken, source.fresh(number + 10_000 + len(parts), 60)]
        length += len(taken) + 60
    return [int(token) for token in np.concatenate(parts)[:tokens]]


def _request(number: int, prompt: list[int]) -> Any:
    from vllm.sampling_params import SamplingParams  # type: ignore[import-not-found]
    from vllm.utils.hashing import sha256  # type: ignore[import-not-found]
    from vllm.v1.core import kv_cache_utils
    from vllm.v1.request import Request

    utils: Any = kv_cache_utils
    if not hasattr(utils, "NONE_HASH"):
        utils.init_none_hash(sha256)
    make: Any = Request
    hasher = utils.get_request_block_hasher(BLOCK, sha256)
    return make(f"r{number}", prompt, SamplingParams(max_tokens=1), None, block_hasher=hasher)


if __name__ == "__main__":
    sys.exit(main())
