"""The service in process: what it answers, what it refuses, what it forgets, and that two of them share nothing."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

pytest.importorskip("fastapi")
httpx = pytest.importorskip("httpx")

from semantic_kv.api import Limits, ServiceSettings, _application, create_app, serve  # noqa: E402
from semantic_kv.latency import LatencyModel  # noqa: E402
from sembase.errors import ConfigurationError  # noqa: E402

LATENCY = LatencyModel(base_ms=10.0, ms_per_uncached_token=1.0, source="given")
LIMITS = Limits(body_bytes=20_000, known_blocks=40, known_requests=6)


class Caller:
    """Requests to one application, without a network."""

    def __init__(self, settings: ServiceSettings | None = None) -> None:
        self.app = create_app(settings or ServiceSettings(latency=LATENCY, limits=LIMITS))

    def __call__(self, method: str, path: str, body: object = None, **more: Any) -> Any:
        async def ask() -> Any:
            transport = httpx.ASGITransport(app=self.app, raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url="http://service") as client:
                return await client.request(method, path, json=body, **more)

        return asyncio.run(ask())

    def ok(self, method: str, path: str, body: object = None) -> Any:
        answer = self(method, path, body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def refused(self, status: int, method: str, path: str, body: object = None, **more: Any) -> str:
        answer = self(method, path, body, **more)
        assert answer.status_code == status, answer.text
        error = answer.json()["error"]
        assert set(error) == {"kind", "message"}
        assert "Traceback" not in answer.text
        return str(error["message"])


@pytest.fixture
def caller() -> Caller:
    return Caller()


def _prompt(document: str, question: str, tenant: str | None = None) -> dict[str, Any]:
    messages = [
        {"role": "system", "content": "You are a support assistant."},
        {"role": "user", "content": f"CONTEXT: {document}\n\nUSER: {question}"},
    ]
    return {"messages": messages, "request_id": "req_001", **({} if tenant is None else {"tenant_id": tenant})}


def test_it_offers_what_was_promised_and_no_more(caller: Caller) -> None:
    assert caller.ok("GET", "/health")["status"] == "ok"
    assert set(caller.ok("GET", "/openapi.json")["paths"]) == {"/health", "/v1/simulate/request"}


def test_a_second_request_hits_the_shared_prefix_and_no_more(caller: Caller) -> None:
    first = caller.ok("POST", "/v1/simulate/request", _prompt("refund policy section", "summarize it"))
    second = caller.ok("POST", "/v1/simulate/request", _prompt("refund policy section", "is it long?"))

    assert [block["semantic_type"] for block in first["blocks"]] == ["system", "retrieved_context", "user"]
    assert (first["hit_blocks"], first["hit_tokens"]) == (0, 0)
    assert second["hit_blocks"] == 2
    shared = sum(block["token_count"] for block in second["blocks"][:2])
    assert second["hit_tokens"] == shared
    assert second["uncached_tokens"] == second["prompt_tokens"] - shared
    assert second["modelled_ttft_ms"] == 10.0 + second["uncached_tokens"]


def test_tenants_share_nothing(caller: Caller) -> None:
    caller.ok("POST", "/v1/simulate/request", _prompt("secret", "a", tenant="one"))

    assert caller.ok("POST", "/v1/simulate/request", _prompt("secret", "a", tenant="two"))["hit_blocks"] == 0
    assert caller.ok("POST", "/v1/simulate/request", _prompt("secret", "a", tenant="one"))["hit_blocks"] == 3


def test_a_full_history_is_forgotten_and_the_cache_with_it(caller: Caller) -> None:
    hits = [caller.ok("POST", "/v1/simulate/request", _prompt("d", "q"))["hit_blocks"] for _ in range(8)]
    assert hits == [0, 3, 3, 3, 3, 3, 0, 3], "after six requests"
    different = Caller()
    for number in range(30):
        different.ok("POST", "/v1/simulate/request", _prompt(f"document {number}", f"question {number}"))
        assert different.app.state.service.cache._builder.node_count <= LIMITS.known_blocks


def test_two_applications_are_two_caches(caller: Caller) -> None:
    caller.ok("POST", "/v1/simulate/request", _prompt("d", "q"))

    assert Caller().ok("POST", "/v1/simulate/request", _prompt("d", "q"))["hit_blocks"] == 0


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "wizard", "content": "x"}]}, "role"),
        ({"messages": [{"role": "user", "content": "x"}], "outptu": 1}, "outptu"),
        ({"messages": [{"role": "user", "content": "  "}]}, "content"),
        ({"messages": [{"role": "user", "content": "x", "semantic_type": "magic"}]}, "semantic_type"),
        ([1, 2], "body"),
    ],
)
def test_requests_that_make_no_sense_are_refused_in_one_sentence(caller: Caller, body: object, message: str) -> None:
    assert message in caller.refused(422, "POST", "/v1/simulate/request", body)


def test_refusals_never_repeat_what_was_sent(caller: Caller) -> None:
    body = {"messages": [{"role": "user", "content": ["SECRET WORDS"]}]}

    assert "SECRET" not in caller.refused(422, "POST", "/v1/simulate/request", body)


def test_large_bodies_are_refused_announced_or_not(caller: Caller) -> None:
    large = b'{"messages": "' + b"x" * 30_000 + b'"}'

    async def pieces() -> Any:
        yield large

    headers = {"content-type": "application/json"}
    for content in (large, pieces()):
        message = caller.refused(413, "POST", "/v1/simulate/request", content=content, headers=headers)
        assert "20,000 bytes" in message


@pytest.mark.parametrize("content", [b"{", b"\xff\xfe", b"[" * 5_000, b'{"messages": NaN}', b""])
def test_bodies_that_are_no_json_are_refused(caller: Caller, content: bytes) -> None:
    answer = caller("POST", "/v1/simulate/request", content=content, headers={"content-type": "application/json"})

    assert answer.status_code in (400, 422)
    assert set(answer.json()) == {"error"}


@pytest.mark.parametrize("kind", [None, "text/plain", "application/x-www-form-urlencoded", "multipart/form-data"])
def test_what_a_form_of_a_web_page_can_send_changes_nothing(caller: Caller, kind: str | None) -> None:
    headers = {"origin": "http://evil.example", **({} if kind is None else {"content-type": kind})}
    content = json.dumps(_prompt("d", "q")).encode()
    caller.refused(415, "POST", "/v1/simulate/request", content=content, headers=headers)
    assert caller.ok("POST", "/v1/simulate/request", _prompt("d", "q"))["hit_blocks"] == 0


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("LOCALHOST:8030", 200),
        ("127.0.0.1:8030", 200),
        ("[::1]:8030", 200),
        ("evil.example", 403),
        ("127.0.0.1.evil.example:8030", 403),
        ("localhost@evil.example", 403),
        ("[", 403),
        ("", 403),
    ],
)
def test_on_loopback_a_name_of_another_machine_is_refused(host: str, status: int) -> None:
    async def ask() -> int:
        transport = httpx.ASGITransport(app=_application(None, is_local=True))
        async with httpx.AsyncClient(transport=transport, base_url="http://service") as client:
            return int((await client.get("/health", headers={"host": host})).status_code)

    assert asyncio.run(ask()) == status


def test_unknown_paths_and_methods_answer_as_the_others_do(caller: Caller) -> None:
    caller.refused(404, "GET", "/v1/nothing")
    caller.refused(405, "PUT", "/health")


def test_our_own_faults_show_no_stack_trace(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    def break_down(_: object) -> None:
        raise RuntimeError("secret detail of the inside")

    monkeypatch.setattr(caller.app.state.service.cache, "look_up", break_down)
    assert "secret" not in caller.refused(500, "POST", "/v1/simulate/request", _prompt("d", "q"))


def test_settings_and_ports_are_checked() -> None:
    with pytest.raises(ConfigurationError, match="must be at least 1"):
        ServiceSettings(capacity=0)
    with pytest.raises(ConfigurationError, match="port 70000"):
        serve(port=70_000)
    with pytest.raises(ConfigurationError, match="no_such_policy"):
        create_app(ServiceSettings(evict="no_such_policy"))
