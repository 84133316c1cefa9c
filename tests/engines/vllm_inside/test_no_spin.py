"""The plug-in that keeps the processes of our scripts' servers from spinning, on vLLM's own class."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest
import zmq
from scripts.engines.no_spin import no_spin

pytestmark = pytest.mark.engine

queues: Any = import_module("vllm.distributed.device_communicators.shm_broadcast")


@pytest.mark.parametrize(("is_installed", "spinning_s"), [(False, 1), (True, 0)])
def test_readers_spin_only_without_the_plug_in(
    monkeypatch: pytest.MonkeyPatch, is_installed: bool, spinning_s: int
) -> None:
    monkeypatch.setattr(queues.SpinCondition, "__init__", queues.SpinCondition.__init__)  # undone after the test
    if is_installed:
        no_spin.install()
    with zmq.Context() as context:
        made = queues.SpinCondition(is_reader=True, context=context, notify_address="inproc://nothing")
        try:
            assert made.busy_loop_s == spinning_s
        finally:
            context.destroy(linger=0)
