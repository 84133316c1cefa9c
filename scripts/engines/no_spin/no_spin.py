"""A plug-in of vLLM's: its processes wait for one another instead of spinning. For servers that share few cores.

A reader of vLLM's message queues spins for a second after each message before it waits for a notification. With a core
or two, that takes up to half of the time in which the worker could compute. Results are the same.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any


def install() -> None:
    queues: Any = import_module("vllm.distributed.device_communicators.shm_broadcast")
    own = queues.SpinCondition.__init__

    def patient(self: Any, *arguments: Any, **named: Any) -> None:
        own(self, *arguments, **named)
        self.busy_loop_s = 0

    queues.SpinCondition.__init__ = patient
