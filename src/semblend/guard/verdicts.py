"""The guard's file: the checker writes tests and verdicts, the gates in the engine read which classes are off.

Replaced atomically; at most 256 tests of about 400 bytes. A reader checks the file's time at most once a second (4 us)
and reads the file only when it changed. If it cannot be read, the last verdicts stay in force and a warning is logged.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from sembase.errors import ConfigurationError
from sembase.files import replace_atomically
from semblend.contract import PlanShape
from semblend.guard.e_process import EProcess
from semblend.guard.tracker import ClassTest, GuardLimits, Key, Tracker

SCHEMA: Final = "semblend.guard.v1"
MAX_BYTES: Final = 1 << 20
_SUMS: Final = ("sum_kl", "sum_ceiling_kl", "worst_kl")
_TEST_KEYS: Final = {"model", "class", "number", "count", "wealth", *_SUMS, "off", "why"}


def encode_tracker(tracker: Tracker) -> str:
    tests = [
        {
            "model": key[0],
            "class": key[1].value,
            "number": test.number,
            "count": test.process.count,
            "wealth": test.process.wealth,
            "sum_kl": test.sum_kl,
            "sum_ceiling_kl": test.sum_ceiling_kl,
            "worst_kl": test.worst_kl,
            "off": test.is_off,
            "why": tracker.why(key),
        }
        for key, test in sorted(tracker.tests.items())
    ]
    limits = tracker.limits
    record = {
        "schema": SCHEMA,
        "ceiling_kl": limits.ceiling_kl,
        "cap_kl": limits.cap_kl,
        "alpha": limits.alpha,
        "class_ceilings_kl": {shape.value: kl for shape, kl in sorted(limits.class_ceilings_kl.items())},
        "begun": tracker.begun,
        "tests": tests,
    }
    return json.dumps(record, indent=1, allow_nan=False) + "\n"


def decode_tracker(text: str, where: str = "guard file") -> Tracker:
    """Read a guard file. An unknown or missing key, or a value of the wrong type, is an error."""
    try:
        record = json.loads(text)
        if record["schema"] != SCHEMA:
            raise ConfigurationError(f"{where}: schema {record['schema']!r} is not {SCHEMA!r}")
        own = {PlanShape(name): float(kl) for name, kl in record.get("class_ceilings_kl", {}).items()}
        limits = GuardLimits(float(record["ceiling_kl"]), float(record["alpha"]), float(record["cap_kl"]), own)
        tests = dict(_test(each, limits) for each in record["tests"])
        begun = int(record["begun"])
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ConfigurationError(f"{where}: not a guard file: {type(error).__name__}: {error}") from None
    return Tracker(limits, tests, max([begun, *(test.number for test in tests.values())]))


def _test(record: dict[str, Any], limits: GuardLimits) -> tuple[Key, ClassTest]:
    if wrong := _TEST_KEYS.symmetric_difference(record):
        raise KeyError(", ".join(sorted(wrong)))
    process = EProcess(limits.mean, [float(each) for each in record["wealth"]], int(record["count"]))
    sum_kl, sum_ceiling_kl, worst_kl = (float(record[name]) for name in _SUMS)
    test = ClassTest(int(record["number"]), process, sum_kl, sum_ceiling_kl, worst_kl, record["off"] is True)
    if test.number < 1:
        raise ValueError("tests must be numbered from 1")
    return (str(record["model"]), PlanShape(record["class"])), test


def read_tracker(path: Path, limits: GuardLimits) -> Tracker:
    """The tracker stored in the file. If the limits have changed, tests begin again and classes that are off stay
    off.
    """
    try:
        with path.open(encoding="utf-8") as stream:
            stored = decode_tracker(stream.read(MAX_BYTES), str(path))
    except FileNotFoundError:
        return Tracker(limits)
    if stored.limits == limits:
        return stored
    return Tracker(limits, {key: test for key, test in stored.tests.items() if test.is_off}, stored.begun)


def write_tracker(path: Path, tracker: Tracker) -> None:
    with replace_atomically(path) as stream:
        stream.write(encode_tracker(tracker).encode())


class Verdicts:
    """Which classes of which models are off. No lock, no wait; the file is checked at most once a second."""

    def __init__(
        self,
        path: Path,
        *,
        look_s: float = 1.0,
        clock_s: Callable[[], float] = time.monotonic,
        warn: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._path = path
        self._look_s = look_s
        self._clock_s = clock_s
        self._warn = warn
        self._looked_s: float | None = None
        self._seen: tuple[int, int] | None = None
        self._off: dict[Key, str] = {}

    def why_off(self, model: str, shape: PlanShape) -> str | None:
        """The reason why plans of this shape are declined for a model as the engine's answers name it, or None."""
        now = self._clock_s()
        if self._looked_s is None or now - self._looked_s >= self._look_s:
            self._looked_s = now
            self._look()
        return self._off.get((model, shape))

    def _look(self) -> None:
        try:
            stat = self._path.stat()
            if (seen := (stat.st_mtime_ns, stat.st_size)) == self._seen:
                return
            self._seen = seen
            with self._path.open(encoding="utf-8") as stream:
                tracker = decode_tracker(stream.read(MAX_BYTES), str(self._path))
        except FileNotFoundError:
            self._seen, self._off = None, {}
            return
        except (OSError, ConfigurationError) as error:
            self._warn(f"cannot read the guard file, the last verdicts stay in force: {error}")
            return
        self._off = {key: tracker.why(key) for key, test in tracker.tests.items() if test.is_off}
