"""A plug-in of vLLM's: its processes rest between two looks at a queue instead of spinning. For servers on few cores.

A reader of vLLM's message queues spins for a second after each message before it waits for a notification. With a core
or two, that takes up to half of the time in which the worker could compute. Waiting for the notification at once does
not help: of two notifications within a millisecond ZeroMQ may drop the second one, and the reader then never wakes.
"""

from __future__ import annotations

import time
from importlib import import_module
from typing import Any, Final

REST_S: Final = 0.0005


def install() -> None:
    queues: Any = import_module("vllm.distributed.device_communicators.shm_broadcast")
    queues.sched_yield = rest


def rest() -> None:
    time.sleep(REST_S)
