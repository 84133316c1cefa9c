"""The plug-in that lets the processes of our scripts' servers rest instead of spinning, on vLLM's own class."""

from __future__ import annotations

import time
from importlib import import_module
from typing import Any

import pytest
import zmq
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
    with zmq.Context() as context:
        made = queues.SpinCondition(is_reader=True, context=context, notify_address="inproc://nothing")
        try:
            for _ in range(3):  # nothing is written, so waiting for a notification would have no end
                made.record_read()
                made.wait(timeout_ms=None)
        finally:
            context.destroy(linger=0)
    assert rests == ([no_spin.REST_S] * 3 if is_installed else [])
