"""A media part's ``uuid`` is vLLM's cache key, without the salt: where salts isolate tenants, it is refused."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from tests.fakes.picker_rig import picker_rig
from tests.fakes.raw_client import ask, chat
from tests.fakes.router_rig import router_rig
from tests.waiting import PATIENCE_S

from semgate.http.faults import RequestRefused
from semgate.http.headers import Headers
from semgate.http.held_body import BodyBudget, HeldBody
from semgate.picker.pick import PickJob, RequestHead
from semgate.router.request.inspection import RequestInspector
from semgate.router.request.members import STRICT_BYTES

PART = {"type": "image_url", "image_url": None, "uuid": "shared-name"}
HEADERS: Headers = ()


def request_of(*parts: Any, **more: Any) -> bytes:
    return json.dumps({"model": "m", "messages": [{"role": "user", "content": list(parts)}], **more}).encode()


def is_refused(body: bytes, path: str = "/v1/chat/completions", *, salted: bool = True) -> bool:
    inspector = RequestInspector(b"k" * 32, trust_tenant_header=False, inject_cache_salt=salted)
    held = HeldBody(BodyBudget(1 << 20), "t")
    held.data = body
    try:
        asyncio.run(inspector.inspect_request(path, HEADERS, held, "t"))
    except RequestRefused as refused:
        return refused.fault.status == 400 and "'uuid'" in refused.fault.message
    return False


@pytest.mark.parametrize(
    "body",
    [
        request_of(PART),
        request_of({"type": "text", "text": "x"}, {"type": "tool_result", "content": [[{"deep": [PART]}]]}),
        request_of({**PART, "uuid": None}),
        request_of(PART).replace(b'"uuid"', b'"\\u0075uid"'),
        request_of(PART).replace(b'"uuid"', b'"u\\u0075\\u0069\\u0064"'),
        request_of(PART).replace(b'"uuid": ', b'"uuid" \n\t:'),
        request_of(PART).replace(b'"uuid": ', b'"uuid": null, "uuid": '),
        request_of(PART).replace(b'"uuid": "shared-name"', b'"uuid": "a", "uuid": null'),
        request_of(PART).replace(b'"messages"', b'"\\u006dessages"'),
        b'{"messages": [], ' + request_of(PART)[1:],
        request_of(PART)[:-1] + b', "temperature": NaN}',
        request_of(PART, pad="x" * STRICT_BYTES),
        b"\xef\xbb\xbf" + request_of(PART),
        json.dumps({"model": "m", "input": [{"role": "user", "content": [PART]}]}).encode(),
    ],
)
def test_a_media_key_is_refused_however_it_is_written(body: bytes) -> None:
    assert is_refused(body)
    assert is_refused(body, "/tokenize"), "it processes media too"
    assert not is_refused(body, salted=False), "without salts tenants are not isolated, and the body passes unchanged"


@pytest.mark.parametrize(
    "body",
    [
        request_of({"type": "text", "text": 'which "uuid": is it?'}),
        request_of({"type": "text", "text": "x"}, tools=[{"function": {"parameters": {"properties": {"uuid": {}}}}}]),
        request_of({"type": "text", "text": "x"}, response_format={"json_schema": {"uuid": {"type": "string"}}}),
        request_of({"type": "uuid"}),
        json.dumps({"messages": [{"tool_calls": [{"function": {"arguments": '{"uuid": "1"}'}}]}]}).encode(),
    ],
)
def test_the_word_elsewhere_passes(body: bytes) -> None:
    assert not is_refused(body)


def test_the_router_and_the_picker_refuse_it_before_an_engine_sees_it(tmp_path: Path) -> None:
    async def work() -> None:
        async with router_rig(tmp_path / "router", "a", inject_cache_salt=True) as rig:
            reply = await ask(rig.port, body=request_of(PART))
            assert (reply.status, reply.error_code) == (400, "field_not_allowed")
            assert rig.replica("a").requests == 0
            assert (await ask(rig.port, body=chat())).status == 200
        async with picker_rig(tmp_path / "picker", inject_cache_salt=True) as picked:
            job = picked.picker.open(RequestHead("POST", "/v1/chat/completions", ()))
            assert isinstance(job, PickJob)
            assert job.take_body(request_of(PART)) is None
            fault = await job.place(None)
            assert fault is not None
            assert (fault.status, fault.code) == (400, "field_not_allowed")
            job.close(is_complete=False)

    asyncio.run(asyncio.wait_for(work(), PATIENCE_S))
