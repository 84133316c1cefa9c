"""A bounded read of a request's body, and a lenient reading of its fields.

Reading never changes or refuses a request: a field that cannot be read is ``None``; the upstream judges the request.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec

from sembase.segment.pieces import messages_of_responses
from semgate.http.faults import BODY_TIMEOUT, TOO_LARGE, RequestRefused
from semgate.http.headers import Headers, find, find_text
from semgate.http.held_body import HeldBody

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
DEFAULT_MAX_BODY_BYTES: Final = 64 * 1024 * 1024
# A body takes at most BODY_SECONDS; one that is slower than MIN_BODY_RATE (bytes per second), SILENT_SECONDS longer
# than that rate allows.
BODY_SECONDS: Final = 60.0
SILENT_SECONDS: Final = 10.0
MIN_BODY_RATE: Final = 64 * 1024
# A body with more values (token ids, messages) is forwarded without decoding, which would take too long.
MAX_VALUES: Final = 1 << 20
# A body whose parsed form may be larger is forwarded without decoding.
MAX_PARSED_BYTES: Final = 128 * 1024 * 1024
# Bytes of CPython's objects, rounded up: a dict of one member with its text key, a list, a value with its slot.
_DICT_BYTES: Final = 320
_LIST_BYTES: Final = 96
_VALUE_BYTES: Final = 72
_NOT_LATIN: Final = re.compile(rb"[\xc4-\xff]|\\u")


class ClientGone(Exception):  # noqa: N818  (an event of the client, not an error of ours)
    """The client closed its connection before its request was complete."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The fields of a request. ``None``: absent or unreadable.

    ``prompt_text`` and ``prompt_tokens`` are of the first prompt; ``prompts`` counts them all. ``tenant`` is what the
    caller established (see ``tenant.py``), never what a client claims on its own. ``reads_cache``: False if the request
    wants log-probabilities of its prompt, for which engines compute it again.
    """

    path: str
    model: str | None
    stream: bool
    messages: list[Any] | None
    prompt_text: str | None
    prompt_tokens: tuple[int, ...] | None
    tenant: str | None
    session: str | None
    cache_salt: str | None
    lora: str | None
    body_bytes: int
    user: str | None = None
    n: int = 1
    prompts: int = 1
    media_parts: int = 0
    reads_cache: bool = True

    def without_prompt(self) -> Asked:
        """Without the prompt, which a placed request no longer needs and would hold while its answer streams."""
        return replace(self, messages=None, prompt_text=None, prompt_tokens=None)


class _Body(msgspec.Struct):
    """Only these fields become Python objects; tools, schemas and images of a request are skipped over as bytes."""

    model: Any = None
    stream: Any = None
    messages: Any = None
    prompt: Any = None
    input: Any = None
    instructions: Any = None
    user: Any = None
    cache_salt: Any = None
    lora_path: Any = None
    n: Any = None
    prompt_logprobs: Any = None
    echo: Any = None
    logprob_start_len: Any = None


_DECODER: Final = msgspec.json.Decoder(_Body)
_NOTHING: Final = _Body()


async def read_body(
    receive: Receive, headers: Headers, max_bytes: int = DEFAULT_MAX_BODY_BYTES, held: HeldBody | None = None
) -> bytes:
    """The whole body, held once; refused as soon as it is known to be too large.

    ``held`` counts and keeps it, and may refuse it; the caller drops it.
    """
    counted_bytes = announced_bytes(headers, max_bytes)
    if held is not None:
        held.count(counted_bytes)
    pieces: list[bytes] = []
    size_bytes = 0
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise ClientGone
        piece = message.get("body", b"")
        size_bytes += len(piece)
        if size_bytes > max_bytes:
            raise RequestRefused(TOO_LARGE)
        if held is not None and size_bytes > counted_bytes:
            held.count(size_bytes - counted_bytes)
            counted_bytes = size_bytes
        pieces.append(piece)
        if not message.get("more_body"):
            body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
            if held is not None:
                held.data = body
            return body


def announced_bytes(headers: Headers, max_bytes: int) -> int:
    """0 if the request announces no length. Refuses one that is too large, or not a number."""
    announced = find(headers, b"content-length")
    if announced is None:
        return 0
    if len(announced) > 18 or not announced.isdigit() or int(announced) > max_bytes:
        raise RequestRefused(TOO_LARGE)
    return int(announced)


async def read_in_time(receive: Receive, headers: Headers, max_bytes: int, held: HeldBody) -> bytes:
    """`read_body`, refused when the client is too slow: see `seconds_for_body`."""
    began_s = asyncio.get_running_loop().time()
    arrived_bytes = 0

    async def receive_in_time() -> MutableMapping[str, Any]:
        nonlocal arrived_bytes
        message = await receive()
        arrived_bytes += len(message.get("body", b""))
        limit.reschedule(began_s + seconds_for_body(arrived_bytes))
        return message

    try:
        async with asyncio.timeout(seconds_for_body(0)) as limit:
            return await read_body(receive_in_time, headers, max_bytes, held)
    except TimeoutError:
        raise RequestRefused(BODY_TIMEOUT) from None


def seconds_for_body(arrived_bytes: int) -> float:
    """How long after its head a body may be incomplete, with as much of it here."""
    return min(SILENT_SECONDS + arrived_bytes / MIN_BODY_RATE, BODY_SECONDS)


def parsed_size(body: bytes) -> int:
    """An upper estimate of the memory of a body's parsed form, from its bytes alone (about 2 ms per MB)."""
    characters = 4 if _NOT_LATIN.search(body) else 1  # one wide character widens its whole string
    objects = body.count(b"{") * _DICT_BYTES + body.count(b"[") * _LIST_BYTES
    return len(body) * characters + objects + (body.count(b",") + body.count(b":")) * _VALUE_BYTES


def read_request(
    path: str, headers: Headers, body: bytes, tenant: str | None = None, *, is_readable: bool | None = None
) -> Asked:
    """Never raises, whatever the bytes are. A body that is not readable (by default: too large) keeps its fields."""
    if is_readable is None:
        is_readable = parsed_size(body) <= MAX_PARSED_BYTES
    is_readable = is_readable and (len(body) <= MAX_VALUES or body.count(b",") <= MAX_VALUES)
    given = _decode(body) if body and is_readable else _NOTHING
    messages = given.messages if isinstance(given.messages, list) else None
    if messages is None and path == "/v1/responses":
        messages = messages_of_responses(given.instructions, given.input)
    text, tokens, prompts = _prompt(given.prompt)
    return Asked(
        path=path,
        model=_text(given.model),
        stream=given.stream is True,
        messages=messages,
        prompt_text=text,
        prompt_tokens=tokens,
        tenant=tenant,
        session=find_text(headers, b"x-session-id"),
        cache_salt=_text(given.cache_salt),
        lora=_text(given.lora_path),
        body_bytes=len(body),
        user=_text(given.user),
        n=given.n if type(given.n) is int and given.n > 0 else 1,
        prompts=prompts,
        media_parts=_media_parts(messages) if messages else 0,
        reads_cache=given.prompt_logprobs is None and not given.echo and given.logprob_start_len is None,
    )


def _decode(body: bytes) -> _Body:
    try:
        return _DECODER.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _decode_what_engines_take(body)


def _decode_what_engines_take(body: bytes) -> _Body:
    """Python servers also accept NaN, lone surrogates and UTF-16; so does this slower decoder."""
    try:
        given = json.loads(body)
    except (ValueError, RecursionError):
        return _NOTHING
    if not isinstance(given, dict):
        return _NOTHING
    return _Body(**{name: given[name] for name in _Body.__struct_fields__ if name in given})


def _prompt(prompt: object) -> tuple[str | None, tuple[int, ...] | None, int]:
    """A text, a list of texts, a list of token ids, or a list of such lists."""
    if isinstance(prompt, str):
        return prompt, None, 1
    if not isinstance(prompt, list) or not prompt:
        return None, None, 1
    first = prompt[0]
    if isinstance(first, str):
        return first, None, len(prompt)
    if isinstance(first, list):
        return None, _token_ids(first), len(prompt)
    return None, _token_ids(prompt), 1


def _token_ids(values: list[Any]) -> tuple[int, ...] | None:
    if not values or set(map(type, values)) != {int} or min(values) < 0 or max(values) >= 2**32:
        return None
    return tuple(values)


def _media_parts(messages: list[Any]) -> int:
    """Parts other than text: images, audio, video, files."""
    count = 0
    for message in messages:
        content = message.get("content") if isinstance(message, dict) else None
        if isinstance(content, list):
            count += sum(1 for part in content if isinstance(part, dict) and part.get("type") not in ("text", None))
    return count


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None
