"""One recipient on replica ``b``: cold, with the donor that ``a`` captured, and with that donor in its own memory."""

from __future__ import annotations

import os
import time
from typing import Final

from scripts.engines.specs import native_dtype

from benchmarks.fleet.readings import PairReading
from benchmarks.fleet.replicas import Fleet, FleetError
from benchmarks.vllm.client import Ask
from benchmarks.vllm.quality import distance
from benchmarks.vllm.workload import SAME_DOCUMENT, Item, Workload

POSITIONS: Final = 8  # of the real continuation, read after every prompt
TOP: Final = 50
WARM_UP_NUMBER: Final = 60
IDLE_S: Final = 1.5  # idle workers of vLLM poll for a second; a fleet's other servers are on other machines
ELEMENT_BYTES: Final = {"float32": 4, "bfloat16": 2}[native_dtype()]


def warm_up(fleet: Fleet, workload: Workload, run: str) -> None:
    """The first requests of a process pay for lazy imports and page faults: one donor, fetched and reused."""
    item = workload.make("1K", SAME_DOCUMENT, WARM_UP_NUMBER)
    fleet.publish(item, f"{run}-warm-up")
    for _ in range(2):
        fleet.b.ask(Ask(item.recipient, POSITIONS, f"{run}-warm-up"), top_logprobs=TOP)


def measure_pair(fleet: Fleet, item: Item, run: str) -> PairReading:
    """The cold arm goes first on every other item. ``run`` makes this run's spaces its own."""
    salt = f"{run}-{item.size}-{item.number}"
    ask = Ask(item.recipient, POSITIONS, salt, forced=item.reference[:POSITIONS])
    cold_ask = Ask(item.recipient, POSITIONS, salt, reuse=False, forced=item.reference[:POSITIONS])
    fleet.publish(item, salt)
    time.sleep(IDLE_S)
    first = fleet.b.ask(cold_ask, top_logprobs=TOP) if item.number % 2 == 0 else None
    before = fleet.b.read_bytes()
    remote, remote_result = fleet.b.ask(ask, top_logprobs=TOP)
    read_bytes = fleet.b.read_bytes() - before
    local, local_result = fleet.b.ask(ask, top_logprobs=TOP)
    cold, cold_result = first or fleet.b.ask(cold_ask, top_logprobs=TOP)
    if cold.cached_tokens or cold_result.was_reused:
        raise FleetError("the cold arm was not cold")
    return PairReading(
        size=item.size,
        number=item.number,
        prompt_tokens=len(item.recipient),
        cold_ms=cold.first_token_ms,
        remote_ms=remote.first_token_ms,
        local_ms=local.first_token_ms,
        remote_tokens=remote_result.reused_tokens,
        local_tokens=local_result.reused_tokens,
        read_bytes=read_bytes,
        planned_bytes=remote_result.reused_tokens * fleet.model.kv_bytes_per_token(ELEMENT_BYTES),
        remote_kl=distance(cold.positions, remote.positions).mean_kl,
        local_kl=distance(cold.positions, local.positions).mean_kl,
        load_average=os.getloadavg()[0],
    )
