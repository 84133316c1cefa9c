"""One history of requests through the planner and through each adapter: what was planned, loaded, declined and why."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from tests.conformance.adapter import Answer, Driver, text
from tests.conformance.drivers import open_driver
from tests.conformance.sglang_tracker import SglangTracker
from tests.conformance.vllm_look_up import VllmLookUp
from tests.golden.compare import as_lines

from semblend.contract import Decline, DeclineReason, Event, LoadAdvertised, Materialized, Namespace, ReusePlan
from semblend.integration.sglang.options import SglangOptions
from semblend.integration.vllm.options import ConnectorOptions
from semblend.pipeline.planner import Planner
from semblend.plan.gates import ADAPTER_GATES, Gates
from semblend.settings import Settings

SHORT: Final = 400  # for adapters with open gates
SERVERS: Final = ("vllm_server", "sglang_server")  # processes that write their events when they come to it
LONG: Final = 1500  # for the gates that a deployment has by default


@dataclass(frozen=True, slots=True)
class Asked:
    what: str
    tokens: list[int]
    tenant: str | None = None


Step = Asked | str


def history(length: int) -> Iterator[Step]:
    """Requests over three documents of ``length`` tokens, and words for what happens between them."""
    first, second, third = (text(seed, length) for seed in (1, 21, 22))
    edited = [*first[: length // 2], 3 + (first[length // 2] == 3), *first[length // 2 + 1 :]]
    yield Asked("first document", first + text(2, 24))
    yield Asked("the same prompt", first + text(2, 24))
    yield Asked("its document as prefix", first + text(3, 40))
    yield Asked("under a new instruction", text(4, 48) + first + text(3, 40))
    yield Asked("under that instruction again", text(4, 48) + first + text(5, 30))
    yield Asked("one token edited", text(6, 48) + edited + text(3, 40))
    yield Asked("second document", second + text(7, 20))
    yield Asked("both, in another order", text(8, 33) + second + text(9, 50) + first + text(10, 25))
    yield Asked("both again", text(8, 33) + second + text(9, 50) + first + text(10, 25))
    yield Asked("parts of both", text(11, 60) + first[length // 4 :] + text(12, 70) + second[: length // 2] + [7])
    yield Asked("short", text(13, 40))
    yield Asked("nothing in common", text(14, length))
    yield Asked("another tenant", text(15, 48) + first + text(16, 40), "b")
    yield Asked("that tenant again", text(17, 48) + first + text(18, 40), "b")
    yield Asked("the first tenant", text(17, 48) + first + text(18, 40))
    yield "forget exact"
    yield Asked("prefix after the exact cache is emptied", first + text(19, 40))
    yield "break look-up"
    yield Asked("during a fault", text(20, 48) + second + text(3, 40))
    yield "restore look-up"
    yield Asked("after the fault", text(20, 48) + second + text(30, 40))
    yield "forget donors"
    yield Asked("after donors are forgotten", text(31, 48) + second + text(3, 40))
    yield Asked("third document", third)
    yield Asked("longer by a document", third + second + text(32, 20))


class Names:
    """Ids of engines are random; donors are numbered in the order in which they were registered or first used."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def of(self, donor_id: str) -> str:
        return f"donor {self._numbers.setdefault(donor_id, len(self._numbers) + 1)}"


def planned() -> dict[str, str]:
    """The planner itself, with the gates that adapters have by default and with open ones."""
    return {
        "serve/planner_default_gates.txt": as_lines([*_planner_lines(ADAPTER_GATES)]),
        "serve/planner_open_gates.txt": as_lines([*_planner_lines(Gates())]),
        "serve/planner_segments.txt": as_lines([*_planner_lines(Gates(), strict_prefix_boundary=False)]),
    }


def _planner_lines(gates: Gates, **more: Any) -> Iterator[str]:
    with Planner(settings=Settings(embedder="none", **more), gates=gates) as planner:
        for number, step in enumerate(history(LONG)):
            if isinstance(step, str):
                continue
            namespace = Namespace(tenant=step.tenant, model="m", tokenizer="t", dtype="d", block_size=16)
            yield f"{step.what}: {len(step.tokens)} tokens"
            yield from _answer_lines(planner.plan(step.tokens, namespace, 16 * (number % 3)))
            planner.register(f"request {number}", step.tokens, namespace)


def _answer_lines(answer: ReusePlan | Decline) -> Iterator[str]:
    if isinstance(answer, Decline):
        yield f"  declined {answer.reason.value} {answer.detail}"
        return
    for run in answer.runs:
        risk = f"{run.risk.differing_tokens} of {run.risk.preceding_tokens} before it differ"
        yield f"  load [{run.target_start}, {run.target_end}) from {run.donor_id} at {run.donor_start}; {risk}"
    for gap in answer.compute:
        yield f"  compute [{gap.start}, {gap.end})"
    claimed = ", ".join(f"[{each.start}, {each.end})" for each in answer.claimed)
    yield f"  claimed {claimed} beyond {answer.exact_prefix_tokens}"


def served(name: str, folder: Path) -> dict[str, str] | str:
    """By one adapter of the conformance suite. A text says why it cannot run here."""
    driver = open_driver(name, folder)
    if isinstance(driver, str):
        return driver
    with closing(driver):
        return {f"serve/{name}.txt": as_lines([*_driver_lines(driver, history(SHORT))])}


def served_by_default() -> dict[str, str]:
    """The same with the options of a deployment that sets none."""
    with closing(VllmLookUp(options=ConnectorOptions())) as vllm, closing(SglangTracker(options=SglangOptions())) as sg:
        return {
            "serve/vllm_default_options.txt": as_lines([*_driver_lines(vllm, history(LONG))]),
            "serve/sglang_default_options.txt": as_lines([*_driver_lines(sg, history(LONG))]),
        }


def _driver_lines(driver: Driver, steps: Iterator[Step]) -> Iterator[str]:
    names = Names()
    acts: dict[str, Callable[[], None]] = {
        "forget exact": driver.forget_exact,
        "forget donors": driver.forget_donors,
        "break look-up": partial(driver.break_look_up, True),
        "restore look-up": partial(driver.break_look_up, False),
    }
    for step in steps:
        if isinstance(step, str):
            if driver.tells_runs or "look-up" not in step:
                acts[step]()
                yield f"({step})"
            continue
        first = len(driver.events())
        answer = driver.serve(step.tokens, step.tenant)
        yield f"{step.what}: {len(step.tokens)} tokens"
        if driver.name in SERVERS:
            yield from _served_lines(_without_suggestions(answer), names)
            continue
        yield from _served_lines(answer, names)
        yield from _event_lines(driver.events()[first:])


def _without_suggestions(answer: Answer) -> Answer:
    """The shared SGLang server searches by similarity as well, and may be late."""
    is_suggested = answer.reason == DeclineReason.NOT_TOKEN_IDENTICAL
    return replace(answer, found=False, reason=DeclineReason.NO_CANDIDATE if is_suggested else answer.reason)


def _served_lines(answer: Answer, names: Names) -> Iterator[str]:
    if not answer.promised:
        yield f"  exact prefix {answer.boundary}, declined {answer.reason}{', found' if answer.found else ''}"
        return
    again = "" if answer.recompute_fraction is None else f"; recompute fraction {answer.recompute_fraction:.4g}"
    yield (
        f"  exact prefix {answer.boundary}, promised {answer.promised}: loaded {answer.loaded}, "
        f"computed {answer.computed}; confirmed {answer.confirmed}; public until {answer.public_until}{again}"
    )
    for run in answer.runs:
        yield f"  load [{run.target_start}, {run.target_end}) from {names.of(run.donor_id)} at {run.donor_start}"


def _event_lines(events: Sequence[Event]) -> Iterator[str]:
    """What was promised to the engine and what it reported, in the words of the contract."""
    for event in events:
        kind = event.__struct_config__.tag
        if isinstance(event, LoadAdvertised):
            yield f"  event {kind}: {event.tokens} from {event.boundary}"
        elif isinstance(event, Materialized):
            yield f"  event {kind}: reused {event.reused_tokens}, computed {event.computed_tokens}"
        else:
            yield f"  event {kind}"
