"""The guard behind a real proxy on loopback, and answers that are held back."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import httpx
import pytest
from tests.fakes.scripted_upstream import Call
from tests.unit.semblend.guard.test_guard_checker import BODY, reply
from tests.unit.semgate.proxy.running_proxy import CHAT, chat_body, play, proxying, stream_three_tokens
from tests.waiting import PATIENCE_S

from sembase.errors import ConfigurationError
from semblend.contract import PlanShape
from semblend.guard.verdicts import Verdicts
from semgate.proxy.guard import class_ceilings


def patient() -> httpx.AsyncClient:
    return httpx.AsyncClient(timeout=PATIENCE_S)


async def drifting(call: Call) -> None:
    asked = json.loads(call.body)
    own = (asked.get("kv_transfer_params") or {}).get("semblend")
    if own is None:
        call.reply(b'{"choices": []}')
    elif own.get("reuse") is False:
        call.reply(reply(0.9, 0.1, outcome="cold_fallback"))
    else:
        call.reply(reply(0.2, 0.8))


def test_sampled_requests_are_asked_again_as_the_same_tenant_until_the_class_is_off(tmp_path: Path) -> None:
    path = tmp_path / "guard.json"

    async def act() -> None:
        changed = {"guard_fraction": 1.0, "guard_file": path, "guard_pairs_per_minute": 1e9}
        async with proxying(drifting, tmp_path, **changed) as running, patient() as client:
            url = f"http://127.0.0.1:{running.port}"
            for _ in range(12):
                sent = json.dumps(BODY).encode()
                answer = await client.post(f"{url}/v1/completions", content=sent, headers={"authorization": "Bearer t"})
                assert answer.status_code == 200
            assert running.service.guard is not None
            while running.service.guard.checker.counts.checked < 12:
                await asyncio.sleep(0.005)
            page = (await client.get(f"http://127.0.0.1:{running.status_port}/metrics")).text
        own = [call for call in running.upstream.calls if b"kv_transfer_params" in call.body]
        assert len(own) == 24
        assert {call.headers["authorization"] for call in own} == {"Bearer t"}
        assert {json.loads(call.body)["cache_salt"] for call in own} == {"tenant"}
        assert 'semgate_guard_off{class="edit",model="m"} 1.0' in page
        assert 'semgate_guard_requests_total{as="checked"} 12.0' in page

    play(act)
    assert Verdicts(path).why_off("m", PlanShape.EDIT) is not None
    kinds = [json.loads(line)["event"] for line in (tmp_path / "guard.events.jsonl").read_text().splitlines()]
    assert kinds.count("guard_checked") == 12
    assert kinds.count("guard_turned_off") == 1


def test_ceilings_of_classes_are_read_from_a_list() -> None:
    assert class_ceilings("") == {}
    assert class_ceilings("edit=0.01, reorder=0.005") == {PlanShape.EDIT: 0.01, PlanShape.REORDER: 0.005}
    for wrong in ("edit", "edit=much", "nothing=0.01"):
        with pytest.raises(ConfigurationError, match="write CLASS=NATS with a class of new_instruction, edit"):
            class_ceilings(wrong)


def test_without_a_fraction_no_request_is_repeated(tmp_path: Path) -> None:
    async def act() -> None:
        async with proxying(drifting, tmp_path) as running, patient() as client:
            await client.post(f"http://127.0.0.1:{running.port}/v1/completions", content=json.dumps(BODY).encode())
            assert running.service.guard is None
        assert len(running.upstream.calls) == 1

    play(act)


@pytest.mark.parametrize("held_ms", [0.0, 300.0])
def test_no_answer_begins_before_its_time(tmp_path: Path, held_ms: float) -> None:
    async def act() -> None:
        changed = {"min_first_byte_ms": held_ms}
        async with (
            proxying(stream_three_tokens, tmp_path, **changed) as running,
            patient() as client,
        ):
            began = time.perf_counter()
            url = f"http://127.0.0.1:{running.port}{CHAT}"
            async with client.stream("POST", url, content=chat_body("a")) as answer:
                head_ms = (time.perf_counter() - began) * 1e3
                whole = await answer.aread()
        assert whole.count(b"data:") == 6
        assert whole.endswith(b"data: [DONE]\n\n")
        assert head_ms >= held_ms

    play(act)


def test_an_answer_without_a_body_is_held_too(tmp_path: Path) -> None:
    async def empty(call: Call) -> None:
        call.reply(b"")

    async def act() -> None:
        async with (
            proxying(empty, tmp_path, min_first_byte_ms=50.0) as running,
            patient() as client,
        ):
            answer = await client.post(f"http://127.0.0.1:{running.port}{CHAT}", content=chat_body("a"))
            assert (answer.status_code, answer.content) == (200, b"")

    play(act)
