"""The process in which one subject is measured. JSON commands come in, JSON answers go out, one per line.

Ours and the rivals run this same loop, with the same tokens and the same clock (``time.perf_counter``).
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from array import array
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.planner.prompts import Prompt, PromptMaker
from benchmarks.planner.subject import FoundRun, StoreFullError, Subject
from benchmarks.planner.tokens import TokenSource, open_source

BATCH_DONORS = 500
WARM_UP_LOOKUPS = 3
OUT_OF_TIME = "out of time"


def serve(subject: Subject) -> None:
    """Answer commands until the input ends. Whatever the subject prints goes to the error stream."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    session = _Session(subject)
    operations: dict[str, Callable[..., dict[str, Any]]] = {"fill": session.fill, "lookups": session.lookups}
    for line in sys.stdin:
        command = json.loads(line)
        answers.write(json.dumps(operations[command.pop("operation")](**command)) + "\n")


class _Session:
    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self._source: TokenSource | None = None
        self._donors = 0

    def fill(self, source: dict[str, Any], donor_count: int, time_limit_s: float) -> dict[str, Any]:
        self._source = open_source(source)
        self._subject.open(donor_count)
        self._prepare(0, min(BATCH_DONORS, donor_count))  # what the allocator keeps of a batch is not the store's
        gc.collect()
        before = resident_bytes()
        seconds = array("d")
        started, cpu_s = time.perf_counter(), 0.0
        stopped = "filled"
        while len(seconds) < donor_count and stopped == "filled":
            first = len(seconds)
            natives = self._prepare(first, min(first + BATCH_DONORS, donor_count))
            cpu_started = time.thread_time()
            stopped = self._register_batch(first, natives, seconds, started + time_limit_s)
            cpu_s += time.thread_time() - cpu_started
        if stopped == OUT_OF_TIME:
            stopped = "filled" if len(seconds) == donor_count else f"not filled within {time_limit_s:.0f} s"
        gc.collect()
        self._donors = len(seconds)
        times = np.frombuffer(seconds, dtype=np.float64) if len(seconds) else np.zeros(1)
        last = times[-min(5_000, times.size) :]
        return {
            "donors": len(seconds),
            "wanted": donor_count,
            "stopped": stopped,
            "resident_bytes": resident_bytes() - before,
            "accounted_bytes": self._subject.accounted_bytes(),
            "register_s": float(times.sum()),
            "register_cpu_s": cpu_s,
            "register_p50_ms": float(np.median(times) * 1e3),
            "register_p99_ms": float(np.quantile(times, 0.99) * 1e3),
            "register_max_ms": float(times.max() * 1e3),
            "last_register_per_s": float(last.size / max(last.sum(), 1e-12)),
        }

    def _prepare(self, first: int, stop: int) -> list[Any]:
        assert self._source is not None
        rows = self._source.donors(first, stop)
        return [self._subject.native_donor(first + offset, row) for offset, row in enumerate(rows)]

    def _register_batch(self, first: int, natives: list[Any], seconds: array[float], deadline: float) -> str:
        for offset, native in enumerate(natives):
            started = time.perf_counter()
            try:
                self._subject.register(first + offset, native)
            except StoreFullError as full:
                return str(full)
            ended = time.perf_counter()
            seconds.append(ended - started)
            if ended > deadline:
                return OUT_OF_TIME
        return "filled"

    def lookups(self, case: str, prompt_tokens: int, count: int, time_limit_s: float, seed: int) -> dict[str, Any]:
        assert self._source is not None
        maker = PromptMaker(self._source, self._donors, seed)
        subject = self._subject
        wall, cpu = array("d"), array("d")
        score = Score()
        begun = time.perf_counter()
        for number in range(count + WARM_UP_LOOKUPS):
            prompt = maker.make(case, prompt_tokens)
            native = subject.native_prompt(prompt.tokens)
            cpu_started, started = time.thread_time(), time.perf_counter()
            answer = subject.lookup(native)
            ended, cpu_ended = time.perf_counter(), time.thread_time()
            # The first ones warm caches; a subject too slow to warm up is counted from its first look-up.
            if number >= WARM_UP_LOOKUPS or ended - started > time_limit_s / 20:
                wall.append(ended - started)
                cpu.append(cpu_ended - cpu_started)
                score.add(prompt, subject.found_runs(answer), self._source)
            if len(wall) >= count or time.perf_counter() - begun > time_limit_s:
                break
        return {"wall_ms": [t * 1e3 for t in wall], "cpu_ms": [t * 1e3 for t in cpu], **score.as_record()}


class Score:
    """What was found, against what the prompt was made of."""

    def __init__(self) -> None:
        self.prompts = self.answered = self.runs = self.reusable = self.found = self.wrong = 0
        self.unchecked = 0  # runs whose donor the subject does not name, so they cannot be checked

    def add(self, prompt: Prompt, runs: list[FoundRun], source: TokenSource) -> None:
        covered = np.zeros(prompt.tokens.size, dtype=np.bool_)
        for run in runs:
            covered[run.target_start : run.target_start + run.length] = True
            self.unchecked += run.donor < 0
            self.wrong += _differing_tokens(prompt, run, source)
        reusable = prompt.reusable
        self.prompts += 1
        self.answered += bool(runs)
        self.runs += len(runs)
        self.reusable += int(reusable.sum())
        self.found += int((covered & reusable).sum())

    def as_record(self) -> dict[str, int | None]:
        return {**vars(self), "wrong": None if self.unchecked else self.wrong}


def _differing_tokens(prompt: Prompt, run: FoundRun, source: TokenSource) -> int:
    if run.donor < 0:
        return 0
    donor = source.donors(run.donor, run.donor + 1)[0, run.donor_start : run.donor_start + run.length]
    return int((donor != prompt.tokens[run.target_start : run.target_start + run.length]).sum())


def resident_bytes() -> int:
    """Anonymous resident memory: files that are merely mapped do not count."""
    with open("/proc/self/status") as status:
        for line in status:
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) * 1024
    return 0
