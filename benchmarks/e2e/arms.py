"""The servers of the end-to-end run: with the connector, with one that is broken on purpose, and without any."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from scripts.engines.server import EngineServer
from scripts.engines.specs import EngineOptions, native_dtype, semblend_flags, vllm_spec

from benchmarks.documents import ROOT
from benchmarks.equal_threads import launch

TOP_LOGPROBS = 20


@dataclass(frozen=True, slots=True)
class Arm:
    """``passes``: whether the gates must let its result pass."""

    name: str
    flags: Callable[[Path], tuple[str, ...]]
    passes: bool
    has_events: bool = True


def _sound(events: Path) -> tuple[str, ...]:
    return semblend_flags({"events": str(events)})


def _broken(events: Path) -> tuple[str, ...]:
    return semblend_flags({"events": str(events)}, connector="benchmarks.e2e.broken_connector:OffByOneConnector")


def _none(_: Path) -> tuple[str, ...]:
    return ()


ARMS: Mapping[str, Arm] = {
    arm.name: arm
    for arm in (
        Arm("on", _sound, passes=True),
        Arm("broken", _broken, passes=False),
        Arm("off", _none, passes=False, has_events=False),
    )
}


@contextmanager
def serving(arm: Arm, events: Path) -> Iterator[EngineServer]:
    events.unlink(missing_ok=True)
    flags = ("--enable-prompt-tokens-details", "--max-logprobs", str(TOP_LOGPROBS), *arm.flags(events))
    options = EngineOptions(
        cores="0-1",
        dev_mode=True,
        extra=flags,
        environment={"PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"},
        dtype=native_dtype(),
    )
    with launch(vllm_spec(options)) as server:
        yield server
