"""Pairs, the checker and its limits, against an engine that is a function."""

from __future__ import annotations

import asyncio
import json
import math
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import PATIENCE_S

from semblend.contract import Event, GuardChecked, GuardTurnedOff, PlanShape
from semblend.guard.checker import MAX_WAITING, AskError, GuardChecker, GuardOptions
from semblend.guard.divergence import kl_lower_bound
from semblend.guard.pair import CHAT, TEXT, Answer, AnswerError, answer_of, divergence, pair_of
from semblend.guard.verdicts import Verdicts

BODY = {"model": "m", "prompt": [1, 2, 3], "stream": True, "max_tokens": 300, "cache_salt": "tenant", "temperature": 1}


def reply(
    *probabilities: float,
    outcome: str = "backend_materialized_reuse",
    chat: bool = False,
) -> bytes:
    listed = {f"token_id:{n}": math.log(p) for n, p in enumerate(probabilities)}
    if chat:
        tops = [{"token": token, "logprob": value} for token, value in listed.items()]
        logprobs: dict[str, Any] = {"content": [{"token": "a", "logprob": -1.0, "top_logprobs": tops}]}
    else:
        logprobs = {"top_logprobs": [listed]}
    provenance: dict[str, Any] = {"outcome": outcome, "class": None}
    if outcome == "backend_materialized_reuse":
        provenance |= {"class": "edit"}
    record = {"model": "m", "choices": [{"logprobs": logprobs}], "kv_transfer_params": {"semblend": provenance}}
    return json.dumps(record).encode()


class Engine:
    """Honours the hint; ``drift`` moves that much mass from the first token to the second when it blends."""

    def __init__(self, drift: float = 0.0) -> None:
        self.drift = drift
        self.asked: list[dict[str, Any]] = []

    async def ask(self, sender: str, body: bytes) -> bytes:
        assert sender == "tenant"
        asked = json.loads(body)
        self.asked.append(asked)
        if asked["kv_transfer_params"]["semblend"].get("reuse") is False:
            return reply(0.9, 0.1, outcome="cold_fallback")
        return reply(0.9 - self.drift, 0.1 + self.drift)


def make_checker(path: Path, engine: Engine, events: list[Event], **changed: Any) -> GuardChecker[str]:
    options = GuardOptions(path, **({"fraction": 1.0, "pairs_per_minute": 1e9} | changed))
    return GuardChecker(options, engine.ask, events.append)


def checked(guard: GuardChecker[str], count: int) -> None:
    async def act() -> None:
        for number in range(count):
            pair = pair_of(TEXT, json.dumps(BODY).encode())
            assert pair is not None
            await guard.check(str(number), pair, "tenant")

    asyncio.run(act())


def test_the_two_questions_are_the_request_with_a_short_answer_blended_first() -> None:
    pair = pair_of(
        TEXT, json.dumps(BODY | {"kv_transfer_params": {"other": 1, "semblend": {"share": 0.1}}}).encode(), 7
    )
    assert pair is not None
    blended, cold = json.loads(pair.blended), json.loads(pair.cold)
    for asked in (blended, cold):
        assert (asked["prompt"], asked["cache_salt"], asked["max_tokens"]) == ([1, 2, 3], "tenant", 16)
        assert (asked["logprobs"], asked["temperature"], asked["priority"]) == (20, 0.0, 7)
        assert "stream" not in asked
        assert asked["kv_transfer_params"]["other"] == 1
    assert blended["kv_transfer_params"]["semblend"] == {"share": 0.1, "capture": False}
    assert cold["kv_transfer_params"]["semblend"] == {"share": 0.1, "capture": False, "reuse": False}
    chat = pair_of(CHAT, b'{"messages": [{"role": "user", "content": "a"}], "tools": []}')
    assert chat is not None
    assert json.loads(chat.cold)["top_logprobs"] == 20
    assert json.loads(chat.cold)["tools"] == []


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b'{"prompt": ["a", "b"]}',
        b'{"prompt": [[1], [2]]}',
        b'{"messages": []}',
        b'{"prompt": "a", "kv_transfer_params": {"semblend": {"reuse": false}}}',
        b'{"prompt": "a", "kv_transfer_params": 3}',
    ],
)
def test_what_cannot_be_checked_is_left_alone(body: bytes) -> None:
    assert pair_of(TEXT, body) is None
    assert pair_of("/v1/embeddings", b'{"prompt": "a"}') is None


def test_both_dialects_are_read_and_others_refused() -> None:
    for chat in (False, True):
        read = answer_of(reply(0.7, 0.2, chat=chat))
        assert (read.model, read.shape) == ("m", PlanShape.EDIT)
        assert read.tokens[0] == pytest.approx({"token_id:0": math.log(0.7), "token_id:1": math.log(0.2)})
    assert len(answer_of(reply(*[0.04] * 21)).tokens[0]) == 20
    assert answer_of(reply(0.7, outcome="exact_prefix")).shape is None
    for wrong in (b"", b"{}", b'{"choices": []}', reply(), b'{"model": "m", "choices": [{"logprobs": null}]}'):
        with pytest.raises(AnswerError):
            answer_of(wrong)


def answer(*positions: tuple[float, ...]) -> Answer:
    return Answer("m", tuple({f"{n}": math.log(p) for n, p in enumerate(each)} for each in positions), None)


def test_answers_are_compared_as_long_as_they_say_the_same() -> None:
    alike = kl_lower_bound({"0": math.log(0.9), "1": math.log(0.1)}, {"0": math.log(0.6), "1": math.log(0.4)})
    cold = answer((0.9, 0.1), (0.9, 0.1), (0.9, 0.1))
    assert divergence(cold, cold) == pytest.approx(0.0, abs=1e-9)
    assert divergence(cold, answer((0.9, 0.1), (0.6, 0.4), (0.9, 0.1))) == pytest.approx(alike / 3)
    # After a different token the two contexts differ: what follows does not measure the KV.
    other = Answer("m", (cold.tokens[0], {"1": math.log(0.9), "0": math.log(0.1)}, {"5": 0.0}), None)
    parted = kl_lower_bound(cold.tokens[1], other.tokens[1])
    assert divergence(cold, other) == pytest.approx(parted / 2)


def test_drift_turns_the_class_off_and_the_engine_can_read_it(tmp_path: Path) -> None:
    path, events = tmp_path / "guard.json", list[Event]()
    guard = make_checker(path, Engine(drift=0.6), events)
    checked(guard, 20)
    (off,) = [event for event in events if isinstance(event, GuardTurnedOff)]
    assert (off.model, off.workload_class) == ("m", "edit")
    assert "ceiling of 0.02" in off.why
    assert isinstance(events[0], GuardChecked)
    assert events[0].kl == pytest.approx(0.9 * math.log(3) + 0.1 * math.log(1 / 7), abs=1e-6)
    assert Verdicts(path).why_off("m", PlanShape.EDIT) is not None
    again = make_checker(path, Engine(), [])
    assert again.tracker.tests["m", PlanShape.EDIT].is_off


def test_equal_answers_never_do(tmp_path: Path) -> None:
    events = list[Event]()
    guard = make_checker(tmp_path / "guard.json", Engine(), events)
    checked(guard, 50)
    assert (guard.counts.checked, guard.counts.turned_off) == (50, 0)


class Sulking(Engine):
    async def ask(self, sender: str, body: bytes) -> bytes:
        raise AskError("timeout")


class Deaf(Engine):
    async def ask(self, sender: str, body: bytes) -> bytes:
        return reply(0.9)


class Cold(Engine):
    async def ask(self, sender: str, body: bytes) -> bytes:
        self.asked.append({})
        return reply(0.9, outcome="exact_prefix")


def test_faults_and_unblended_requests_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "guard.json"
    for engine, counted in ((Sulking(), "failed"), (Deaf(), "failed"), (Cold(), "not_blended")):
        guard = make_checker(path, engine, [])
        checked(guard, 3)
        assert (getattr(guard.counts, counted), guard.counts.checked) == (3, 0)
        assert len(engine.asked) in (0, 3)  # no cold request without a blended answer
    unwritable = make_checker(path / "no" / "folder.json", Engine(), [])
    path.write_text("")
    checked(unwritable, 1)
    assert unwritable.counts.unwritten == 1


def test_the_checker_holds_a_bounded_queue_and_works_it_off(tmp_path: Path) -> None:
    engine = Engine()

    async def act() -> None:
        guard = make_checker(tmp_path / "guard.json", engine, [])
        body = json.dumps(BODY).encode()
        taken = [guard.offer(str(number), TEXT, body, "tenant") for number in range(MAX_WAITING + 6)]
        assert (sum(taken), guard.counts.dropped) == (MAX_WAITING, 6)
        assert not make_checker(tmp_path / "guard.json", engine, [], fraction=0.0).offer("x", TEXT, body, "tenant")
        task = asyncio.create_task(guard.run())
        while guard.counts.checked < MAX_WAITING:
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert guard._waiting_bytes == 0

    asyncio.run(asyncio.wait_for(act(), PATIENCE_S))
    assert len(engine.asked) == 2 * MAX_WAITING


def test_no_more_pairs_than_allowed(tmp_path: Path) -> None:
    """At 1 pair a minute the second waits; the clock does not move."""

    async def act() -> None:
        engine = Engine()
        options = GuardOptions(tmp_path / "guard.json", 1.0, pairs_per_minute=1.0)
        guard: GuardChecker[str] = GuardChecker(options, engine.ask, lambda _: None, clock_s=lambda: 0.0)
        for number in range(3):
            guard.offer(str(number), TEXT, json.dumps(BODY).encode(), "tenant")
        task = asyncio.create_task(guard.run())
        while not guard.counts.checked:
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.01)
        assert guard.counts.checked == 1
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(asyncio.wait_for(act(), PATIENCE_S))
