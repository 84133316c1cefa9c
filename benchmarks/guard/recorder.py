"""Records first-token distributions and KL: sound blends, broken ones, cold ones. One JSON line per item and arm, 3 KB.

Called by ``benchmarks.guard.inside`` in the engine's environment; rows are appended as they come. Items that are
already complete are skipped.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.console import progress
from benchmarks.corpus import TOKENIZER
from benchmarks.discovery.codec import TokenizerCodec
from benchmarks.documents import DEFAULT_TEXTS
from benchmarks.fidelity.items import COUNTS, STANDARD_CASES, FidelityItem, FidelitySet
from benchmarks.fidelity.laboratory import Cold
from benchmarks.fidelity.rig import Rig, Timed
from benchmarks.guard.arms import ROPE_FAULT, SHARES, SOUND, STALE_FAULT
from benchmarks.guard.rows import drop_torn
from benchmarks.vllm.texts import read_texts
from semblend.contract import ReusePlan
from semblend.integration.vllm.commands import CaptureCommand, StepCommands
from semblend.plan.selection import DEFAULT_POLICY, Selection

TOP = 20
STALE = "stale"


class Recorder:
    def __init__(self, rig: Rig, out: Path) -> None:
        self._rig = rig
        self._out = out
        self._before: NDArray[np.int64] | None = None
        self._whole = drop_torn(out)

    def record(self, item: FidelityItem) -> None:
        if item.name not in self._whole:
            self._record(item)
        self._before = np.asarray(item.recipient, np.int64)

    def _record(self, item: FidelityItem) -> None:
        rig = self._rig
        timed = rig.cold(item)
        tokens = rig.answer(item, timed)
        cold = Cold(timed.reading, tokens, rig.along(item, tokens, rig.cold_blocks, timed.first), None)
        self._write(item, "floor", cold, rig.cold(item, 256), rig.cold_blocks, None)
        plan = rig.plan(item)
        if isinstance(plan, ReusePlan):
            rig.store(item)
            if self._before is not None:
                self._store_stale(item)
            for share in SHARES:  # a fault is compared with the correct blend at the same budget
                self._arm(item, plan, f"{SOUND}@{share:g}", cold, share)
                with _off_by_one(rig):
                    self._arm(item, plan, f"{ROPE_FAULT}@{share:g}", cold, share)
                if self._before is not None:
                    self._arm(item, plan, f"{STALE_FAULT}@{share:g}", cold, share, stale=True)
            rig.forget(item)

    def _arm(
        self, item: FidelityItem, plan: ReusePlan, arm: str, cold: Cold, share: float, *, stale: bool = False
    ) -> None:
        command = self._rig.command(item, plan, Selection(DEFAULT_POLICY, share))
        if stale:
            command = replace(command, runs=tuple(replace(run, donor_id=STALE) for run in command.runs))
        self._rig.load(command)
        timed = self._rig.finish(item, plan, time.perf_counter())
        self._write(item, arm, cold, timed, self._rig.blocks, plan)

    def _store_stale(self, item: FidelityItem) -> None:
        """Stores the KV of another text under a donor's name, as when a slot is reused without notice."""
        assert self._before is not None
        ids = np.resize(self._before, max(len(donor) for donor in item.donors))
        rig = self._rig
        rig.prefill(rig.donor_blocks, ids)
        count = -(-len(ids) // rig.cache.block_tokens)
        rig.half.save(StepCommands(drops=[STALE]))
        rig.half.save(
            StepCommands(captures=[CaptureCommand(STALE, STALE, len(ids), 0, len(ids), rig.donor_blocks[:count])])
        )
        rig.half.take_report()

    def _write(
        self,
        item: FidelityItem,
        arm: str,
        cold: Cold,
        timed: Timed,
        blocks: tuple[int, ...],
        plan: ReusePlan | None,
    ) -> None:
        answer = self._rig.along(item, cold.tokens, blocks, timed.first)
        runs = [] if plan is None else plan.runs
        donors = list(dict.fromkeys(run.donor_id for run in runs))
        row = {
            "item": item.name,
            "case": item.case,
            "source": item.source,
            "arm": arm,
            "prompt_tokens": len(item.recipient),
            "runs": [
                [
                    donors.index(run.donor_id),
                    run.donor_start,
                    run.target_start,
                    run.length,
                    run.risk.preceding_tokens,
                    run.risk.differing_tokens,
                    run.risk.mean_share,
                ]
                for run in runs
            ],
            "cold_top": [_top(each) for each in cold.answer.logprobs],
            "top": [_top(each) for each in answer.logprobs],
        }
        with self._out.open("a") as stream:
            stream.write(json.dumps(row) + "\n")


def _top(logprobs: NDArray[np.float32]) -> list[list[float]]:
    best = np.argsort(-logprobs, kind="stable")[:TOP]
    return [[int(token), round(float(logprobs[token]), 5)] for token in best]


@contextmanager
def _off_by_one(rig: Rig) -> Iterator[None]:
    half: Any = rig.half
    sound = half._moved
    half._moved = lambda keys, shift: sound(keys, shift + 1)
    try:
        yield
    finally:
        half._moved = sound


def run(engine: Any) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--each", type=int, default=12, help="items per case and source")
    parser.add_argument("--minutes", type=float, required=True, help="start no further item after this")
    parser.add_argument("--size", default="1K")
    arguments = parser.parse_args()
    codec = TokenizerCodec(TOKENIZER)
    items = FidelitySet(DEFAULT_TEXTS, read_texts(DEFAULT_TEXTS, codec), codec, arguments.size)
    with torch.inference_mode():
        recorder = Recorder(Rig(engine), arguments.out)
        ends_s = time.monotonic() + 60.0 * arguments.minutes
        for number in range(arguments.each):  # case by case within a round: a run broken off has seen every case
            for case in STANDARD_CASES:
                for source in COUNTS[case]:
                    if time.monotonic() > ends_s:
                        return 0
                    recorder.record(items.make(case, source, number))
                    progress(f"{case}/{source}/{number}")
    return 0
