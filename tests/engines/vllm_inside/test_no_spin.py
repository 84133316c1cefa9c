"""The plug-in that lets the processes of our scripts' servers rest instead of spinning, on vLLM's own class."""

from __future__ import annotations

import inspect
import time
from importlib import import_module
from typing import Any

import pytest
from scripts.engines.no_spin import no_spin

pytestmark = pytest.mark.engine

queues: Any = import_module("vllm.distributed.device_communicators.shm_broadcast")


@pytest.mark.parametrize("is_installed", [False, True])
def test_a_reader_rests_between_looks_and_needs_no_notification(
    monkeypatch: pytest.MonkeyPatch, is_installed: bool
) -> None:
    monkeypatch.setattr(queues, "sched_yield", queues.sched_yield)  # undone after the test
    rests: list[float] = []
    monkeypatch.setattr(time, "sleep", rests.append)
    if is_installed:
        no_spin.install()
    made = queues.SpinCondition.__new__(queues.SpinCondition)  # without sockets: waiting for one of them would raise
    made.is_reader = True
    made.busy_loop_s = inspect.signature(queues.SpinCondition.__init__).parameters["busy_loop_s"].default
    for _ in range(3):
        made.record_read()
        made.wait(timeout_ms=None)
    assert rests == ([no_spin.REST_S] * 3 if is_installed else [])
