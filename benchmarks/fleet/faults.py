"""Parts that die: the engine that captured, the directory and the store, killed or stopped during a request."""

from __future__ import annotations

import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Final, NamedTuple

from benchmarks.fleet.readings import FaultReading, Readings, RecoveryReading
from benchmarks.fleet.replicas import Fleet, FleetError, Replica
from benchmarks.vllm.client import Ask, Reply, RequestFailedError
from benchmarks.vllm.workload import SAME_DOCUMENT, Item, Workload

ITEMS: Final = 4  # prompts of a fault; its requests take turns, and the server forgets its donors before each
ANSWER_TOKENS: Final = 8
DELAY_S: Final = 0.2  # from preparing a request to the fault: it is looked up, fetched or computed by then
RECOVERY_S: Final = 120.0
KEPT_S: Final = 30.0  # after a fault, for donors of before
AFTER_KILL: Final = "capturing engine killed"
AFTER_RESTART: Final = "capturing engine restarted"


class Healthy(NamedTuple):
    """What an item's prompt gives without a fault: cold, and with the donor of the other server."""

    item: Item
    cold: Reply
    reused: Reply


class _Counted:
    """What a server newly asked the fleet for, by its own metrics."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._known = replica.asked_fleet()

    def new_counts(self) -> dict[str, int]:
        now = self._replica.asked_fleet()
        new, self._known = Counter(now) - self._known, now
        return dict(new)


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


def lose_engine(fleet: Fleet, workload: Workload, readings: Readings, run: str, size: str, count: int) -> None:
    """Donors of an engine that was killed are reused by the other one and by its own next life."""
    healthy = [_healthy(fleet, item, run, fleet.a) for item in _items(workload, AFTER_KILL, size, count)]
    fleet.a.kill()
    for replica, event in ((fleet.b, AFTER_KILL), (fleet.a, AFTER_RESTART)):
        if event == AFTER_RESTART:
            fleet.a.start()
        counted = _Counted(replica)
        for number, each in enumerate(healthy):
            readings.add(_asked(replica, each, run, event, counted, is_control_first=number % 2 == 1))


def lose_part(
    fleet: Fleet, workload: Workload, readings: Readings, run: str, event: str, size: str, count: int
) -> None:
    """The fault comes during the first request; the others follow while it lasts. Then it ends.

    Every request needs the fleet: the server forgets its donors before each, and while the store is at fault donors
    that were missed in it are announced again.
    """
    healthy = [_healthy(fleet, item, run, fleet.a) for item in _items(workload, event, size, ITEMS)]
    part, fault = PART_FAULTS[event]
    fleet.keep_entries()
    counted = _Counted(fleet.b)
    timer = threading.Timer(DELAY_S, fleet.send_signal, [part, fault])
    for number in range(len(readings.faults(event)), count):
        if event in STORE_FAULTS:
            fleet.announce_again()
        before = None if timer.ident else timer.start
        each, is_first = healthy[number % ITEMS], before is None and number % 2 == 1
        readings.add(_asked(fleet.b, each, run, event, counted, before, is_control_first=is_first))
    timer.join()
    if fault is signal.SIGKILL:
        fleet.restart(part)
    else:
        fleet.send_signal(part, signal.SIGCONT)
    readings.add(_recovered(fleet, healthy[0].item, run, event))


def _recovered(fleet: Fleet, item: Item, run: str, event: str) -> RecoveryReading:
    """With a donor of before the fault, if the fleet still has it, or with a new one."""
    ended = time.monotonic()
    part, fault = PART_FAULTS[event]
    can_be_kept = fault is signal.SIGSTOP or (part == "store master" and fleet.has_snapshots)
    while can_be_kept and time.monotonic() - ended < KEPT_S:
        fleet.announce_again()
        fleet.b.forget_donors()
        _, result = fleet.b.ask(Ask(item.recipient, ANSWER_TOKENS, _salt(run, item)))
        if result.was_reused:
            return RecoveryReading(event=event, seconds=time.monotonic() - ended, is_kept=True)
    salt = _salt(run, item) + "-again"
    fleet.publish(item, salt, fleet.a)
    _wait_for_reuse(fleet.b, item, salt, ended + KEPT_S)
    return RecoveryReading(event=event, seconds=time.monotonic() - ended)


def _items(workload: Workload, event: str, size: str, count: int) -> list[Item]:
    first = _FIRST_NUMBER[event]
    return [workload.make(size, SAME_DOCUMENT, number) for number in range(first, first + count)]


def _salt(run: str, item: Item) -> str:
    return f"{run}-fault-{item.number}"


def _healthy(fleet: Fleet, item: Item, run: str, capturing: Replica) -> Healthy:
    salt = _salt(run, item)
    cold, _ = fleet.b.ask(Ask(item.recipient, ANSWER_TOKENS, salt, reuse=False))
    fleet.publish(item, salt, capturing)
    reused = _wait_for_reuse(fleet.b, item, salt, time.monotonic())
    return Healthy(item, cold, reused)


def _asked(
    replica: Replica,
    healthy: Healthy,
    run: str,
    event: str,
    counted: _Counted,
    before: Callable[[], None] | None = None,
    *,
    is_control_first: bool,
) -> FaultReading:
    """``before`` is called when the request is about to be sent."""
    item, cold = healthy.item, healthy.cold
    about = {"event": event, "number": item.number, "prompt_tokens": len(item.recipient)}
    control_ask = Ask(item.recipient, ANSWER_TOKENS, _salt(run, item), reuse=False)
    try:
        control = replica.ask_queued(control_ask)[0] if is_control_first else None
        replica.forget_donors()
        if before is not None:
            before()
        reply, result, queued_ms = replica.ask_queued(Ask(item.recipient, ANSWER_TOKENS, _salt(run, item)))
        if control is None:
            control = replica.ask_queued(control_ask)[0]
    except (RequestFailedError, OSError) as error:
        return FaultReading(**about, outcome=str(error), reused_tokens=0, is_failed=True)  # type: ignore[arg-type]
    right = healthy.reused if result.was_reused else cold
    return FaultReading(
        **about,  # type: ignore[arg-type]
        outcome=result.outcome,
        reused_tokens=result.reused_tokens,
        first_token_ms=reply.first_token_ms,
        control_ms=control.first_token_ms,
        queued_ms=queued_ms,
        asked=counted.new_counts(),
        is_wrong=reply.tokens != right.tokens,
    )


def _wait_for_reuse(replica: Replica, item: Item, salt: str, since: float) -> Reply:
    """The first answer with a donor of the fleet. A request that comes too early is computed."""
    while True:
        replica.forget_donors()
        reply, result = replica.ask(Ask(item.recipient, ANSWER_TOKENS, salt))
        if result.was_reused:
            return reply
        if time.monotonic() - since > RECOVERY_S:
            raise FleetError(f"no donor of the fleet was reused within {RECOVERY_S:.0f} s")
