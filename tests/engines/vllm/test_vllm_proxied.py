"""`semgate proxy` in front of a real vLLM server."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path

import pytest
from scripts.engines.server import EngineServer
from scripts.engines.specs import SERVED_NAME
from tests.engines.proxied import check_what_passes
from tests.fakes.scripted_upstream import connected
from tests.unit.semgate.proxy.running_proxy import CHAT, play, proxy_process
from tests.waiting import until

ANSWER_TOKENS = 5_000
JSON = (("content-type", "application/json"),)
pytestmark = [pytest.mark.engine, pytest.mark.slow]


def test_it_passes_everything_and_records_what_the_engine_reported(vllm_server: EngineServer, tmp_path: Path) -> None:
    play(lambda: check_what_passes(vllm_server.base_url, tmp_path / "proxy"))


def metric(server: EngineServer, name: str) -> float:
    with urllib.request.urlopen(f"{server.base_url}/metrics", timeout=300) as answer:
        lines = answer.read().decode().splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(f"vllm:{name}{{"))


def test_a_client_that_leaves_stops_the_engine(vllm_server: EngineServer, tmp_path: Path) -> None:
    """Or it would generate the whole answer, for minutes. The body is large enough to make a server stop reading."""
    story = {"role": "user", "content": "Tell a story without an end. " + "And then? " * 300}
    padding = "x" * 100_000
    body = {"model": SERVED_NAME, "messages": [story], "stream": True, "max_tokens": ANSWER_TOKENS}
    body["ignore_eos"] = True

    async def act() -> None:
        async with proxy_process(vllm_server.base_url, tmp_path / "proxy") as (port, _):
            async with connected(port) as client:
                client.send("POST", CHAT, json.dumps(body | {"user": padding}).encode(), JSON)
                status, headers = await client.head()
                assert status == 200, (headers, await client.reader.read(500))
                await client.chunk()
                assert metric(vllm_server, "num_requests_running") == 1
            await until(lambda: metric(vllm_server, "num_requests_running") == 0, "the engine still generates")

    before = metric(vllm_server, "generation_tokens_total")
    play(act)
    assert metric(vllm_server, "generation_tokens_total") - before < ANSWER_TOKENS, "it was stopped, not done"
