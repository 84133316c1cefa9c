"""Answers through the router begin no earlier than the setting says."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import httpx
import pytest
from tests.fakes.router_rig import router_rig
from tests.waiting import PATIENCE_S


@pytest.mark.parametrize("stream", [False, True])
def test_no_answer_of_the_router_begins_before_its_time(tmp_path: Path, stream: bool) -> None:
    async def act() -> None:
        patient = httpx.AsyncClient(timeout=PATIENCE_S)
        async with router_rig(tmp_path, "a", min_first_byte_ms=300.0) as rig, patient as client:
            asked = {"model": "m", "messages": [{"role": "user", "content": "hello"}], "stream": stream}
            began = time.perf_counter()
            url = f"http://127.0.0.1:{rig.port}/v1/chat/completions"
            async with client.stream("POST", url, json=asked) as answer:
                head_ms = (time.perf_counter() - began) * 1e3
                body = await answer.aread()
            assert answer.status_code == 200
            assert body
            assert head_ms >= 300.0

    asyncio.run(asyncio.wait_for(act(), PATIENCE_S))
