"""Whatever bytes come in, an answer goes out: no crash, no stack trace, and the router serves the next request."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.fakes.model_folder import write_model_folder
from tests.fakes.raw_client import Exchange, ask, chat
from tests.fakes.router_rig import Rig, router_rig
from tests.waiting import PATIENCE_S

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
KEYS = st.sampled_from(
    ["model", "stream", "messages", "prompt", "user", "cache_salt", "n", "lora_path", "tools", "input", "text"]
)
BODIES = st.one_of(
    st.binary(max_size=200),
    st.dictionaries(KEYS, JSON, max_size=6).map(lambda made: json.dumps(made).encode()),
    st.dictionaries(KEYS, JSON, max_size=6).map(lambda made: json.dumps(made).encode("utf-16")),
    st.dictionaries(KEYS, JSON, max_size=3).map(lambda made: json.dumps(made).encode()[:-2]),
    st.integers(1, 60_000).map(lambda depth: b'{"messages":' + b"[" * depth),
    st.just(b'{"messages":[{"role":"user","content":"\\ud800"}],"cache_salt":"\\udfff"}'),
)
HEADERS = st.dictionaries(
    st.sampled_from(["x-session-id", "x-tenant-id", "x-request-id", "authorization", "content-type", "accept"]),
    st.text(st.characters(min_codepoint=32, max_codepoint=255, exclude_characters="\x7f"), max_size=40),
    max_size=4,
)
PATHS = st.sampled_from(["/v1/chat/completions", "/v1/completions", "/v1/responses", "/generate", "/tokenize", "/x"])
CASE = st.tuples(PATHS, BODIES, HEADERS)
RAW = st.binary(min_size=1, max_size=300)


@pytest.mark.parametrize(
    ("policy", "tokens"),
    [
        ("semantic_locality", "none"),
        ("prefix_hash", "none"),
        ("prefix_hash", "local"),
        ("precise_prefix", "engine"),
        ("semantic_placement", "local"),
    ],
)
def test_any_request_gets_an_answer(policy: str, tokens: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The oracle: a status, a JSON or stream body, nothing logged that names an exception."""

    async def every(cases: list[tuple[str, bytes, dict[str, str]]], rig: Rig) -> None:
        for path, body, headers in cases:
            reply = await ask(rig.port, path, body, headers=headers)
            assert reply.status in (200, 400, 404), (path, body, headers)
            assert b"Traceback" not in reply.body
            assert reply.complete

    options: dict[str, Any] = {"routing_policy": policy, "trust_tenant_header": True}
    options["engine_tokenize"] = tokens == "engine"
    options["tokenizer"] = write_model_folder(tmp_path / "model") if tokens == "local" else None
    _fuzz(CASE, every, tmp_path, caplog, options, examples=60)


def test_any_request_with_a_salt_gets_an_answer(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def every(cases: list[tuple[str, bytes, dict[str, str]]], rig: Rig) -> None:
        for path, body, headers in cases:
            assert (await ask(rig.port, path, body, headers=headers)).status in (200, 400, 404)

    _fuzz(CASE, every, tmp_path, caplog, {"inject_cache_salt": True}, examples=60)


def test_any_bytes_on_the_wire_leave_the_router_serving(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def every(cases: list[bytes], rig: Rig) -> None:
        for raw in cases:
            exchange = await Exchange.open(rig.port)
            exchange.writer.write(raw + b"\r\n\r\n")
            exchange.writer.write_eof()
            try:
                reply = await asyncio.wait_for(exchange.reader.read(4096), PATIENCE_S)
            except ConnectionError:
                reply = b""
            assert b"Traceback" not in reply
            await exchange.close()
        assert (await ask(rig.port, body=chat())).status == 200

    _fuzz(RAW, every, tmp_path, caplog, {}, examples=60)


def _fuzz(
    strategy: st.SearchStrategy[Any],
    every: Any,
    folder: Path,
    caplog: pytest.LogCaptureFixture,
    options: dict[str, Any],
    *,
    examples: int,
) -> None:
    @settings(max_examples=examples // 6, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(strategy, min_size=6, max_size=6))
    def batch(cases: list[Any]) -> None:
        async def work() -> None:
            async with router_rig(folder, "a", **options) as rig:
                await every(cases, rig)

        with caplog.at_level(logging.DEBUG):
            asyncio.run(asyncio.wait_for(work(), PATIENCE_S))

    batch()
    assert [record for record in caplog.records if record.exc_info] == []
