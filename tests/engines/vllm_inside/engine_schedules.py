"""The schedules of ``repair_schedules.py`` on the real engine with a tiny random model, every public block compared.

Runs in vLLM's interpreter. After every few steps the KV under each public hash is compared with that of a cold
prefill, made outside of the engine. ``--plant`` publishes blocks before they are repaired, which must be noticed.
Prints one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import tempfile
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any, Final

import torch
from tests.engines.vllm_inside.agent_sessions import Session, act
from tests.engines.vllm_inside.engine import (
    Request,
    SamplingParams,
    get_block_hash,
)

from semblend.doctor.gpu.driven_engine import DrivenEngine, tiny_arguments
from semblend.doctor.gpu.tiny_model import TinyModel

BLOCK: Final = 32
BLOCKS: Final = 44  # two sessions of 600 tokens and their repair do not fit
STEPS: Final = 80
MAX_STEPS: Final = 600  # until a schedule has come to rest
ROUNDING: Final = 1e-3  # between two ways to compute the same; KV of another context differs by more than 0.05
OPTIONS: Final = {
    "boundary_recompute_tokens": 8,
    "host_bytes": 1 << 24,
    "min_inexact_tokens": 0,
    "repair": "likely",
}


class InexactError(Exception):
    """A block under a public hash holds KV that a cold prefill would not give."""


class Engine:
    """The engine core in this process, driven step by step."""

    def __init__(self, folder: Path) -> None:
        self.model = TinyModel()
        arguments = tiny_arguments(
            self.model.save(folder),
            OPTIONS,
            block_size=BLOCK,
            max_num_batched_tokens=256,
            max_num_seqs=4,
            num_gpu_blocks_override=BLOCKS,
        )
        self._driven = DrivenEngine(arguments)  # ends the engine when it is forgotten
        self.core = self._driven.core
        self.worker = self._driven.connector._worker
        self.oracle = Oracle(self.model, self.worker._cache, self.core.request_block_hasher)
        self.requests: list[Any] = []
        self._fails: set[str] = set()
        self._break_on_demand(self.worker._transfers, "load")
        self._break_on_demand(self.worker._sparse_forward, "compute")

    @property
    def scheduler(self) -> Any:
        return self.core.scheduler

    @property
    def half(self) -> Any:
        return self.scheduler.connector._half

    def add(self, request_id: str, prompt: list[int], outputs: int, salt: str | None = None) -> Any:
        params = SamplingParams(max_tokens=outputs, temperature=0.0, ignore_eos=True)
        hasher = self.core.request_block_hasher
        request = Request(request_id, list(prompt), params, None, cache_salt=salt, block_hasher=hasher)
        self.core.add_request(request)
        self.requests.append(request)
        return request

    def abort(self, request_id: str) -> None:
        self.core.abort_requests([request_id])

    def flush(self) -> None:
        """No step is in flight between two steps here."""

    def fail_next(self, draws: Random) -> None:
        self._fails = {draws.choice(["load", "compute"])}

    def _break_on_demand(self, part: Any, name: str) -> None:
        works = getattr(part, name)

        def call(*given: Any, **named: Any) -> Any:
            if name in self._fails:
                raise OSError("injected")
            return works(*given, **named)

        setattr(part, name, call)

    def step(self) -> None:
        self.core.step()
        self._fails.clear()

    def rest(self) -> None:
        """Until nothing runs, nothing is repaired and every block has come back."""
        for _ in range(MAX_STEPS):
            if not self.scheduler.has_requests() and not self.half.has_waiting_blocks:
                break
            self.step()
        else:
            raise RuntimeError(f"not at rest after {MAX_STEPS} steps")
        pool = self.scheduler.kv_cache_manager.block_pool
        if pool.get_num_free_blocks() != pool.num_gpu_blocks - 1:
            raise RuntimeError("blocks were not given back")

    def check(self) -> None:
        for request in self.requests:
            self.oracle.learn(request)
        self.requests = [request for request in self.requests if not request.is_finished()]
        for block in self.scheduler.kv_cache_manager.block_pool.blocks:
            if block.block_hash is not None:
                self.oracle.compare(block.block_id, bytes(get_block_hash(block.block_hash)))

    def forget(self) -> None:
        """The next schedule starts with nothing cached and without donors."""
        self.scheduler.reset_prefix_cache(reset_connector=True)
        self.oracle.forget()
        self.requests.clear()


class Oracle:
    """Cold prefills of everything that a request may have published, by the same model outside of the engine."""

    def __init__(self, model: TinyModel, cache: Any, hasher: Any) -> None:
        self._model, self._cache, self._hasher = model, cache, hasher
        self._tokens: dict[bytes, tuple[list[int], int]] = {}  # a public hash: whose block, and which
        self._cold: dict[tuple[int, ...], Any] = {}
        self.blocks = 0
        self.largest = 0.0

    def forget(self) -> None:
        self._tokens.clear()
        self._cold.clear()

    def learn(self, request: Any) -> None:
        """The hashes that the engine gives these tokens; those of a blended request are others."""
        tokens = list(request.all_token_ids)
        params = SamplingParams(max_tokens=1)
        twin = Request("twin", tokens, params, None, cache_salt=request.cache_salt, block_hasher=self._hasher)
        for number, block_hash in enumerate(twin.block_hashes):
            self._tokens.setdefault(bytes(block_hash), (tokens, number))

    def compare(self, block_id: int, block_hash: bytes) -> None:
        if (known := self._tokens.get(block_hash)) is None:
            return  # private
        tokens, number = known
        part = slice(number * BLOCK, (number + 1) * BLOCK)
        for layer, cold in enumerate(self._cold_of(tuple(tokens))):
            own = self._cache.read(layer, torch.tensor([block_id]))
            error = max(float((one - other[part]).abs().max()) for one, other in zip(own, cold, strict=True))
            self.largest = max(self.largest, error)
            if not error <= ROUNDING:
                raise InexactError(f"{error:.3g} in block {number} of {len(tokens)} tokens, layer {layer}")
        self.blocks += 1

    def _cold_of(self, tokens: tuple[int, ...]) -> Any:
        if tokens not in self._cold:
            self._cold[tokens] = self._model.kv(tokens)
        return self._cold[tokens]


def play(engine: Engine, seed: int, counted: Counter[str]) -> None:
    draws = Random(seed)
    sessions = [Session(draws, seed * 7 + number) for number in range(draws.randrange(1, 4))]
    for step in range(STEPS):
        act(engine, draws, sessions, counted, step)
        engine.step()
        if step % 10 == 9:
            engine.check()
    engine.rest()
    engine.check()
    engine.forget()
    counted["schedules"] += 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--schedules", type=int, default=200)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--plant", action="store_true", help="publish blocks that are not repaired yet")
    arguments = parser.parse_args()
    os.environ |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "SEMBLEND_EMBEDDER": "none"}
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    counted: Counter[str] = Counter()
    inexact = ""
    with tempfile.TemporaryDirectory(prefix="semblend-schedules-") as folder, torch.inference_mode():
        engine = Engine(Path(folder))
        logging.disable(logging.ERROR)  # a line per request, and a traceback per injected fault
        _count_reports(engine, counted)
        if arguments.plant:
            _publish_early(engine)
        for seed in range(arguments.first, arguments.first + arguments.schedules):
            try:
                play(engine, seed, counted)
            except InexactError as error:
                inexact = f"schedule {seed}: {error}"
                break
            if seed % 10 == 9:
                print(json.dumps(counted), file=sys.stderr, flush=True)
    result = {"inexact": inexact, **counted, "blocks": engine.oracle.blocks, "largest": engine.oracle.largest}
    print("RESULT " + json.dumps(result), flush=True)
    os._exit(bool(inexact) and not arguments.plant)  # the engine's threads would keep the process


def _count_reports(engine: Engine, counted: Counter[str]) -> None:
    take = engine.worker.take_report

    def counting() -> Any:
        report = take()
        if report is not None:
            counted["blended"] += sum(not loaded.fault for loaded in report.loaded.values())
            counted["computed instead"] += sum(bool(loaded.fault) for loaded in report.loaded.values())
            counted["claims neither loaded nor computed"] += len(report.load_faults)
            counted["repaired slices"] += len(report.repaired)
            counted["failed slices"] += len(report.repair_faults)
            counted["repaired tokens"] += sum(report.repaired.values())
        return report

    engine.worker.take_report = counting


def _publish_early(engine: Engine) -> None:
    repairs = engine.half.repairs
    publish = repairs._publish

    def too_early(job: Any, manager: Any) -> None:
        job.exact = len(job.tokens)
        publish(job, manager)

    repairs._publish = too_early


if __name__ == "__main__":
    main()
