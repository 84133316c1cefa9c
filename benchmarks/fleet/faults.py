"""Parts that die: the engine that captured, the directory and the store, killed or stopped during a request."""

from __future__ import annotations

import signal
import threading
import time
from typing import Final, NamedTuple

from benchmarks.fleet.readings import FaultReading, Readings, RecoveryReading
from benchmarks.fleet.replicas import Fleet, FleetError, Replica
from benchmarks.vllm.client import Ask, Reply, RequestFailedError
from benchmarks.vllm.workload import SAME_DOCUMENT, Item, Workload

SIZE: Final = "1K"
ANSWER_TOKENS: Final = 8
DELAY_S: Final = 0.05  # from sending a request to the fault
RECOVERY_S: Final = 120.0
AFTER_KILL: Final = "capturing engine killed"
AFTER_RESTART: Final = "capturing engine restarted"


class PartFault(NamedTuple):
    part: str
    signal: signal.Signals


DIRECTORY_FAULTS: Final = {
    "directory killed": PartFault("directory", signal.SIGKILL),
    "directory stopped": PartFault("directory", signal.SIGSTOP),
}
STORE_FAULTS: Final = {  # of Mooncake Store
    "store node killed": PartFault("store node", signal.SIGKILL),
    "store node stopped": PartFault("store node", signal.SIGSTOP),
    "store master killed": PartFault("store master", signal.SIGKILL),
    "store master stopped": PartFault("store master", signal.SIGSTOP),
}
PART_FAULTS: Final = STORE_FAULTS | DIRECTORY_FAULTS
_FIRST_NUMBER: Final = {
    AFTER_KILL: 20,
    **{event: 30 + 10 * at for at, event in enumerate(DIRECTORY_FAULTS)},
    **{event: 70 + 10 * at for at, event in enumerate(STORE_FAULTS)},
}


def lose_engine(fleet: Fleet, workload: Workload, readings: Readings, run: str, count: int) -> None:
    """Donors of an engine that was killed are reused by the other one and by its own next life."""
    items = _items(workload, AFTER_KILL, 2 * count)
    cold = [_cold(fleet, item, run) for item in items]
    for item in items:
        fleet.publish(item, _salt(run, item))
    fleet.a.kill()
    for item, reply in list(zip(items, cold, strict=True))[:count]:
        readings.add(_asked(fleet.b, item, run, reply, AFTER_KILL))
    fleet.a.start()
    for item, reply in list(zip(items, cold, strict=True))[count:]:
        readings.add(_asked(fleet.a, item, run, reply, AFTER_RESTART))


def lose_part(fleet: Fleet, workload: Workload, readings: Readings, run: str, event: str, count: int) -> None:
    """The fault comes during the first request; the others follow while it lasts. Then it ends."""
    items = _items(workload, event, count + 1)
    cold = [_cold(fleet, item, run) for item in items]
    for item in items:
        fleet.publish(item, _salt(run, item))
    part, fault = PART_FAULTS[event]
    timer = threading.Timer(DELAY_S, fleet.send_signal, [part, fault])
    timer.start()
    for item, reply in list(zip(items, cold, strict=True))[:count]:
        readings.add(_asked(fleet.b, item, run, reply, event))
    timer.join()
    if fault is signal.SIGKILL:
        fleet.restart(part)
        ended = time.monotonic()
        fleet.publish(items[-1], _salt(run, items[-1]) + "-again")
    else:
        fleet.send_signal(part, signal.SIGCONT)
        ended = time.monotonic()
    suffix = "-again" if fault is signal.SIGKILL else ""
    _wait_for_reuse(fleet.b, items[-1], _salt(run, items[-1]) + suffix, ended)
    readings.add(RecoveryReading(event=event, seconds=time.monotonic() - ended))


def _items(workload: Workload, event: str, count: int) -> list[Item]:
    first = _FIRST_NUMBER[event]
    return [workload.make(SIZE, SAME_DOCUMENT, number) for number in range(first, first + count)]


def _salt(run: str, item: Item) -> str:
    return f"{run}-fault-{item.number}"


def _cold(fleet: Fleet, item: Item, run: str) -> Reply:
    return fleet.b.ask(Ask(item.recipient, ANSWER_TOKENS, _salt(run, item), reuse=False))[0]


def _asked(replica: Replica, item: Item, run: str, cold: Reply, event: str) -> FaultReading:
    about = {"event": event, "number": item.number, "prompt_tokens": len(item.recipient)}
    try:
        reply, result = replica.ask(Ask(item.recipient, ANSWER_TOKENS, _salt(run, item)))
    except (RequestFailedError, OSError) as error:
        return FaultReading(**about, outcome=str(error), reused_tokens=0, added_ms=0.0, is_failed=True)  # type: ignore[arg-type]
    return FaultReading(
        **about,  # type: ignore[arg-type]
        outcome=result.outcome,
        reused_tokens=result.reused_tokens,
        added_ms=reply.first_token_ms - cold.first_token_ms,
        is_wrong=not result.was_reused and reply.tokens != cold.tokens,
    )


def _wait_for_reuse(replica: Replica, item: Item, salt: str, since: float) -> None:
    while not replica.ask(Ask(item.recipient, 1, salt))[1].was_reused:
        if time.monotonic() - since > RECOVERY_S:
            raise FleetError(f"no donor of the fleet was reused within {RECOVERY_S:.0f} s after the fault")
