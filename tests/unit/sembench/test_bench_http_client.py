"""The live client against a stand-in server in its own process: dialects, times, faults as statuses."""

from __future__ import annotations

import asyncio
import json
import math
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from tests.fakes.openai_server import WORDS, running
from tests.waiting import PATIENCE_S

from sembase.errors import ConfigurationError, ContractError
from sembench.http.client import Endpoint, LiveClient, LiveReply, LiveRequest, decode

ENDPOINTS: tuple[Endpoint, ...] = ("chat", "completions", "sglang_generate")
TTFT_MS, ITL_MS = 30.0, 10.0


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with running(ttft_ms=TTFT_MS, itl_ms=ITL_MS) as url:
        yield url


def ask(server: str, *, timeout_s: float = 20.0, **changes: Any) -> LiveReply:
    fields: dict[str, Any] = {"request_id": "item-1", "prompt": "one two three", "max_tokens": 5, "model": "fake-model"}

    async def go() -> LiveReply:
        async with LiveClient(server, timeout_s=timeout_s, max_connections=4) as client:
            return await client.ask(LiveRequest(**{**fields, **changes}))

    return asyncio.run(go())


def last_seen(server: str) -> dict[str, Any]:
    async def go() -> tuple[int, bytes]:
        async with LiveClient(server, timeout_s=120, max_connections=1) as client:
            return await client.get("/seen")

    seen: dict[str, Any] = json.loads(asyncio.run(go())[1])["seen"][-1]
    return seen


@pytest.mark.parametrize("keep_text", [True, False])
@pytest.mark.parametrize("fake", [{}, {"split": True, "crlf": True}], ids=["whole", "split"])
@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_an_answer_is_read_whole(server: str, endpoint: Endpoint, fake: dict[str, Any], keep_text: bool) -> None:
    reply = ask(server, endpoint=endpoint, extra={"fake": {"cached": 16, **fake}}, keep_text=keep_text)
    assert (reply.status, reply.detail) == ("ok", "")
    assert reply.text == ("".join(WORDS[:5]) if keep_text else "")
    assert (reply.prompt_tokens, reply.completion_tokens, reply.cached_tokens) == (3, 5, 16)
    assert len(reply.chunk_ms) == 5  # neither the role chunk, nor usage, nor the end count as tokens
    assert reply.headers == {"x-semblend-routing-path": "semantic", "x-semblend-routing-worker": "w1"}


@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_an_answer_in_one_piece_says_the_same_without_a_first_token(server: str, endpoint: Endpoint) -> None:
    fake = {"cached": 16, "kv": True}
    whole = ask(server, endpoint=endpoint, extra={"fake": fake}, stream=False)
    streamed = ask(server, endpoint=endpoint, extra={"fake": fake})
    assert last_seen(server)["body"]["stream"] is True
    assert (whole.status, whole.text, whole.backend) == ("ok", "".join(WORDS[:5]), streamed.backend)
    assert (whole.prompt_tokens, whole.completion_tokens, whole.cached_tokens) == (3, 5, 16)
    assert (whole.ttft_ms, whole.chunk_ms) == (None, ())
    assert whole.total_ms is not None
    broken = ask(server, endpoint=endpoint, extra={"fake": {"http": 500}}, stream=False)
    assert broken.status == "http_500"
    assert "as you wished" in broken.detail


def test_tool_calls_in_one_piece_are_kept_apart() -> None:
    calls = [{"function": {"name": name, "arguments": "{}"}} for name in ("pay", "ask")]
    payload = json.dumps({"choices": [{"message": {"content": None, "tool_calls": calls}}]}).encode()
    assert [call["name"] for call in json.loads(decode("chat", [payload]).text)] == ["pay", "ask"]


@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_times_are_the_servers_and_the_role_chunk_is_no_token(server: str, endpoint: Endpoint) -> None:
    """Lower bounds only: a loaded machine may add any amount, and can take none away."""
    reply = ask(server, endpoint=endpoint)
    assert reply.ttft_ms is not None
    assert reply.total_ms is not None
    assert reply.ttft_ms == reply.chunk_ms[0] >= TTFT_MS
    assert list(reply.chunk_ms) == sorted(reply.chunk_ms)
    assert reply.chunk_ms[-1] >= TTFT_MS + 4 * ITL_MS
    assert reply.total_ms >= reply.chunk_ms[-1]


@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_logprobs_have_a_token_and_its_alternatives(server: str, endpoint: Endpoint) -> None:
    reply = ask(server, endpoint=endpoint, top_logprobs=2)
    assert [entry.token for entry in reply.logprobs] == list(WORDS[:5])
    for entry in reply.logprobs:
        assert entry.logprob == pytest.approx(-0.1)
        assert len(entry.top) == 2
        assert math.isclose(entry.top[entry.token], entry.logprob)
    assert ask(server, endpoint=endpoint).logprobs == ()


def test_what_a_server_does_not_say_is_not_measured(server: str) -> None:
    silent = ask(server, extra={"fake": {"fault": "no_usage"}})
    assert silent.status == "ok"
    assert (silent.prompt_tokens, silent.completion_tokens, silent.cached_tokens, silent.backend) == (None,) * 4
    assert ask(server).cached_tokens is None


@pytest.mark.parametrize("keep_text", [True, False])
def test_backend_evidence_comes_through(server: str, keep_text: bool) -> None:
    assert ask(server, extra={"fake": {"kv": True}}, keep_text=keep_text).backend == {"reused_tokens": 64}
    sglang = ask(server, endpoint="sglang_generate", keep_text=keep_text)
    assert sglang.backend is not None
    assert sglang.backend["id"] == "item-1"


def test_ids_tenant_and_template_are_sent(server: str) -> None:
    ask(server, tenant="acme", template="chatml", extra={"seed": None, "top_k": 1})
    seen = last_seen(server)
    assert seen["headers"]["x-request-id"] == seen["body"]["request_id"] == "item-1"
    assert seen["headers"]["x-tenant-id"] == seen["body"]["cache_salt"] == "acme"
    assert seen["headers"]["x-chat-template-id"] == "chatml"
    assert seen["headers"]["accept-encoding"] == "identity"
    assert seen["body"]["temperature"] == 0
    assert seen["body"]["top_k"] == 1
    assert "seed" not in seen["body"]
    ask(server, endpoint="sglang_generate", prompt=(5, 6, 7), max_tokens=2)
    seen = last_seen(server)
    assert (seen["body"]["rid"], seen["body"]["input_ids"]) == ("item-1", [5, 6, 7])
    assert "x-tenant-id" not in seen["headers"]
    assert "cache_salt" not in seen["body"]


def test_hints_and_tenants_go_where_each_endpoint_has_a_place_for_them(server: str) -> None:
    hints = {"reuse": False}
    ask(server, endpoint="sglang_generate", prompt=(5, 6, 7), max_tokens=2, hints=hints, tenant="acme")
    body = last_seen(server)["body"]
    assert body["sampling_params"]["custom_params"] == {"semblend": hints}
    assert body["cache_salt"] == "acme"
    assert "kv_transfer_params" not in body
    ask(server, endpoint="completions", hints=hints)
    assert last_seen(server)["body"]["kv_transfer_params"] == {"semblend": hints}


@pytest.mark.parametrize(
    ("fault", "status", "detail", "tokens"),
    [
        ("reset_in_stream", "broken_stream", "", 2),
        ("error_event", "broken_stream", "out of memory", 2),
        ("garbage", "broken_stream", "not JSON", 5),
        ("no_done", "broken_stream", "without [DONE]", 5),
        ("close_before_answer", "connection", "", 0),
    ],
)
def test_faults_are_statuses(server: str, fault: str, status: str, detail: str, tokens: int) -> None:
    reply = ask(server, extra={"fake": {"fault": fault}})
    assert reply.status == status
    assert detail in reply.detail
    assert len(reply.chunk_ms) == tokens
    assert (reply.ttft_ms is None) == (tokens == 0)


def test_an_http_error_is_its_code_with_the_servers_words(server: str) -> None:
    reply = ask(server, extra={"fake": {"http": 429}})
    assert (reply.status, reply.ttft_ms) == ("http_429", None)
    assert "as you wished" in reply.detail


def test_a_server_that_hangs_is_a_timeout(server: str) -> None:
    reply = ask(server, timeout_s=0.2, extra={"fake": {"fault": "hang"}})
    assert reply.status == "timeout"
    assert reply.total_ms is not None
    assert reply.total_ms >= 200


def test_a_missing_server_is_a_connection_fault_but_a_reset_says_so() -> None:
    with running() as url:
        gone = url
    assert ask(gone).status == "connection"

    async def reset() -> None:
        async with LiveClient(gone, timeout_s=5, max_connections=1) as client:
            await client.post("/reset_prefix_cache")

    with pytest.raises(ConnectionError, match=r"POST .*/reset_prefix_cache"):
        asyncio.run(reset())


def test_cancellation_passes_through_and_frees_the_connection(server: str) -> None:
    async def go() -> str:
        async with LiveClient(server, timeout_s=120, max_connections=1) as client:
            hanging = LiveRequest("a", "x", 1, "m", extra={"fake": {"fault": "hang"}})
            task = asyncio.create_task(client.ask(hanging))
            await asyncio.sleep(0.1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            return (await client.ask(LiveRequest("b", "x", 1, "m"))).status

    assert asyncio.run(go()) == "ok"


def test_more_requests_than_connections_all_end_well(server: str) -> None:
    async def go() -> list[str]:
        async with LiveClient(server, timeout_s=PATIENCE_S, max_connections=40) as client:  # two pools
            requests = [LiveRequest(str(i), "x", 2, "m") for i in range(100)]
            return [reply.status for reply in await asyncio.gather(*map(client.ask, requests))]

    assert asyncio.run(go()) == ["ok"] * 100


def test_waiting_for_a_server_that_loads(capsys: pytest.CaptureFixture[str]) -> None:
    async def go(url: str, seconds: float) -> str:
        async with LiveClient(f"{url}/v1/", timeout_s=PATIENCE_S, max_connections=1) as client:
            return await client.wait_ready(seconds)

    with running(not_ready=2) as url:
        assert asyncio.run(go(url, 300)) == "fake-model"
        waited = capsys.readouterr().err
        assert waited.startswith(f"waiting up to 300 s for {url} (")
        assert waited.count("\n") == 1
    with pytest.raises(ConfigurationError, match=r"not ready after 0 s .*start the server"):
        asyncio.run(go(url, 0))


@pytest.mark.parametrize("address", ["localhost:8000", "ftp://host", "http://", ""])
def test_an_address_that_is_none(address: str) -> None:
    with pytest.raises(ConfigurationError, match="expected http://host:port"):
        LiveClient(address, timeout_s=1, max_connections=1)


def test_requests_that_cannot_be_sent() -> None:
    with pytest.raises(ContractError, match="token ids"):
        LiveRequest("a", (1, 2), 1, "m")
    with pytest.raises(ContractError, match="at least 1"):
        LiveRequest("a", "x", 0, "m")


def test_importing_the_client_needs_no_httptools_but_making_one_names_the_extra() -> None:
    script = """
import sys
sys.modules["httptools"] = None
from sembench.http.client import LiveClient
from sembase.errors import MissingDependencyError
try:
    LiveClient("http://x", timeout_s=1, max_connections=1)
except MissingDependencyError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "pip install 'kvmend[live]'" in done.stdout
