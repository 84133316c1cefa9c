"""Token ids by asking an engine: what is asked, and that nothing but ids ever comes of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from sembase.http.client import HttpClient, HttpFault
from semgate.http.headers import Headers
from semgate.http.request_body import read_request
from semgate.tokens.remote import EngineTokens, tokenize_request

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"


class Reply:
    headers: Headers = ()

    def __init__(self, status: int, body: bytes) -> None:
        self.status = status
        self._body = body
        self.aborted = False

    async def chunks(self) -> AsyncIterator[bytes]:
        for place in range(0, len(self._body), 7):
            yield self._body[place : place + 7]

    async def abort(self) -> None:
        self.aborted = True


class Engine:
    """An upstream that gives one answer, or none."""

    def __init__(self, answer: Reply | HttpFault | None) -> None:
        self.answer = answer
        self.asked: list[tuple[str, str, dict[str, Any]]] = []

    async def send(self, origin: str, method: str, path: str, headers: Headers, body: bytes) -> Reply:
        self.asked.append((origin, f"{method} {path}", json.loads(body)))
        if self.answer is None:
            await asyncio.Event().wait()
        if isinstance(self.answer, HttpFault):
            raise self.answer
        assert self.answer is not None
        return self.answer


def tokens_of(engine: Engine, path: str, body: dict[str, Any], origin: str | None = "http://one") -> list[int] | None:
    source = EngineTokens(cast(HttpClient, engine), lambda: origin, seconds=0.05 if engine.answer is None else 20.0)
    raw = json.dumps(body).encode()
    found = asyncio.run(source.tokens_of(read_request(path, (), raw), raw))
    asyncio.run(source.close())
    return None if found is None else found.tolist()


def test_a_chat_is_asked_for_with_all_that_makes_its_prompt() -> None:
    reply = Reply(200, b'{"count": 3, "max_model_len": 8, "tokens": [5, 6, 7]}')
    engine = Engine(reply)
    messages = [{"role": "user", "content": "x"}]
    body = {"model": "m", "messages": messages, "tools": [{"n": 1}], "temperature": 1, "user": "somebody"}
    assert tokens_of(engine, CHAT, body) == [5, 6, 7]
    assert engine.asked == [("http://one", "POST /tokenize", {"model": "m", "messages": messages, "tools": [{"n": 1}]})]
    assert reply.aborted


def test_a_completion_is_asked_for_by_its_text() -> None:
    engine = Engine(Reply(200, b'{"tokens": [1]}'))
    assert tokens_of(engine, COMPLETIONS, {"model": "m", "prompt": "text"}) == [1]
    assert engine.asked[0][2] == {"model": "m", "prompt": "text", "add_special_tokens": True}


def test_ids_that_are_there_are_not_asked_for() -> None:
    engine = Engine(None)
    assert tokens_of(engine, COMPLETIONS, {"prompt": [3, 4]}) == [3, 4]
    assert engine.asked == []


@pytest.mark.parametrize(
    "answer",
    [
        Reply(404, b'{"tokens": [1]}'),
        Reply(200, b"not JSON"),
        Reply(200, b'{"tokens": ["1"]}'),
        Reply(200, b'{"tokens": [-1]}'),
        HttpFault("connect", sent=False),
        None,
    ],
)
def test_anything_but_ids_in_time_is_none(answer: Reply | HttpFault | None) -> None:
    assert tokens_of(Engine(answer), COMPLETIONS, {"prompt": "text"}) is None


def test_no_engine_to_query() -> None:
    assert tokens_of(Engine(None), COMPLETIONS, {"prompt": "text"}, origin=None) is None


def test_requests_beyond_the_limit_do_not_wait() -> None:
    async def scenario() -> None:
        source = EngineTokens(cast(HttpClient, Engine(None)), lambda: "http://one", seconds=0.05, waiting=2)
        raw = b'{"prompt": "text"}'
        asked = read_request(COMPLETIONS, (), raw)
        assert await asyncio.gather(*(source.tokens_of(asked, raw) for _ in range(5))) == [None] * 5
        assert (source.counters.too_many_waiting, source.counters.failed) == (3, 2)

    asyncio.run(scenario())


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"prompt": 5}', b'{"messages": [], "chat_template": "x"}'])
def test_what_has_no_question(body: bytes) -> None:
    assert tokenize_request(read_request(COMPLETIONS, (), body), body) is None
