"""No output of a real proxy process (files, logs, metrics, headers) holds a prompt's text, or a digest that would let a
reader verify a guess."""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
from collections.abc import Iterator
from pathlib import Path

from scripts.engines.ports import free_port
from tests.fakes.scripted_upstream import EVENTS_HEAD, Call, ask, connected, scripted
from tests.unit.semgate.proxy.running_proxy import CHAT, DONE, TOKEN, event, play, proxy_process

CANARY = "Zebra7-canary-text"
TEXTS = (
    f"{CANARY} system",
    f"{CANARY} first paragraph",
    f"CONTEXT: {CANARY} document",
    f"{CANARY} last question",
)
PROMPT = "\n\n".join(TEXTS[1:])
HASHES = ("md5", "sha1", "sha256", "blake2b", "blake2s", "sha512", "sha3_256")


def guesses() -> Iterator[bytes]:
    """The canary itself, and every digest of it or of its blocks that needs no key, however it may be written."""
    yield CANARY.encode()
    texts = {CANARY, PROMPT, *TEXTS, *(text.strip() for text in TEXTS)}
    texts |= (
        {"\n\n" + text for text in TEXTS}
        | {json.dumps(text) for text in TEXTS}
        | {f"content\0{text}" for text in TEXTS}
    )
    for text in texts:
        for name in HASHES:
            digest = hashlib.new(name, text.encode()).digest()
            yield digest.hex()[:16].encode()
            yield base64.b64encode(digest)[:16]
        for size in (8, 16, 20, 32):
            yield hashlib.blake2b(text.encode(), digest_size=size).hexdigest()[:16].encode()


def bodies() -> Iterator[bytes]:
    system = {"role": "system", "content": TEXTS[0]}
    parts = [{"type": "text", "text": TEXTS[3]}, {"type": "image_url", "image_url": {"url": f"data:{CANARY}"}}]
    yield json.dumps({"model": "m", "stream": True, "messages": [system, {"role": "user", "content": PROMPT}]}).encode()
    yield json.dumps({"model": CANARY, "user": CANARY, "messages": [{"role": CANARY, "content": parts}]}).encode()
    yield json.dumps({"messages": [system], "tools": [{"function": {"name": CANARY}}], "cache_salt": CANARY}).encode()
    yield json.dumps({"model": "m", "prompt": [PROMPT, CANARY]}).encode()
    yield b'{"messages": [{"role": "user", "content": "' + CANARY.encode()  # no JSON at all
    yield json.dumps({"messages": CANARY, "prompt": {"a": CANARY}}).encode()


async def answer(call: Call) -> None:
    """Streams, errors and torn replies, all of which quote the prompt, as engines do."""
    kind = len(call.body) % 4
    if kind == 0:
        call.reply(json.dumps({"error": {"message": CANARY}}).encode(), status="400 Bad Request")
    elif kind == 1:
        call.transport.abort()
    else:
        call.write(EVENTS_HEAD)
        call.chunk(TOKEN + event({"choices": [{"delta": {"content": CANARY}, "finish_reason": "stop"}]}))
        call.chunk(DONE) if kind == 2 else call.transport.abort()
        call.end()


async def use(port: int, status_port: int) -> list[str]:
    """Everything the process says of its own: the headers of its answers, its pages, its refusals."""
    outputs: list[str] = []
    named = (
        ("x-session-id", CANARY),
        ("x-tenant-id", CANARY),
        ("authorization", f"Bearer {CANARY}"),
        ("x-odd", CANARY),
    )
    for body in [*bodies(), *(body + b" " * pad for body in bodies() for pad in (1, 2, 3))]:
        for path in (CHAT, "/v1/completions", f"{CHAT}?q={CANARY}"):
            got = await ask(port, "POST", path, body, named)
            outputs.append(str(got.headers))
    for asked, path in itertools.product(
        (port, status_port), (f"/{CANARY}", f"/v1/models/{CANARY}", "/metrics", "/healthz")
    ):
        got = await ask(asked, "GET", path, b"", named)
        outputs += [str(got.headers), "" if path.startswith("/v1") else got.body.decode()]
    async with connected(port) as client:
        client.writer.write(CANARY.encode() + b"\r\n\r\n")
        outputs.append((await client.answer()).body.decode())
    return outputs


def test_no_output_holds_text_or_unkeyed_digests(tmp_path: Path) -> None:
    async def act() -> None:
        status_port = free_port()
        flags = ("--trust-tenant-header", "true", "--status-port", str(status_port))
        async with (
            scripted(answer) as upstream,
            proxy_process(upstream.origin, tmp_path / "work", *flags) as (port, _),
        ):
            outputs = await use(port, status_port)
        files = [path for path in (tmp_path / "work").rglob("*") if path.is_file()]
        everything = {str(path): path.read_bytes() for path in files} | {"outputs": "\n".join(outputs).encode()}
        records = [line for name, held in everything.items() if name.endswith(".jsonl") for line in held.splitlines()]
        assert len(records) > 40
        assert b"semgate_proxy_requests_total" in everything["outputs"]
        lowered = {name: held.lower() for name, held in everything.items()}
        for guess in guesses():
            for name, held in lowered.items():
                assert guess.lower() not in held, f"{guess!r} in {name}"
            assert all(guess.decode().lower() not in name.lower() for name in everything)
        assert all(b"Traceback" not in held for held in everything.values())

    play(act)


def test_the_search_finds_what_it_looks_for(tmp_path: Path) -> None:
    """With redaction off, the same search must find the canary: otherwise the test above would prove nothing."""

    async def act() -> None:
        async with (
            scripted(answer) as upstream,
            proxy_process(upstream.origin, tmp_path / "work", "--redact-text", "false") as (port, _),
        ):
            await ask(port, "POST", CHAT, next(bodies()))
        held = b"".join(path.read_bytes() for path in (tmp_path / "work" / "traces").glob("*.jsonl"))
        assert CANARY.encode() in held
        assert hashlib.sha256(TEXTS[0].encode()).hexdigest().encode() not in held  # even then digests stay keyed

    play(act)


def test_two_tenants_with_the_same_text_have_nothing_in_common(tmp_path: Path) -> None:
    async def act() -> None:
        async with scripted(answer) as upstream, proxy_process(upstream.origin, tmp_path / "work") as (port, _):
            for key in ("a", "b", "a"):
                headers = (("authorization", f"Bearer {key}"), ("x-session-id", "s"), ("x-tenant-id", "same claim"))
                await ask(port, "POST", CHAT, next(bodies()), headers)
        (path,) = (tmp_path / "work" / "traces").glob("*.jsonl")
        one, other, again = (json.loads(line) for line in path.read_text().splitlines())
        digests = [{block["content_hash"] for block in record["blocks"]} for record in (one, other, again)]
        assert digests[0] == digests[2]
        assert not digests[0] & digests[1]
        assert one["tenant_id"] == again["tenant_id"] != other["tenant_id"]
        assert one["session_id"] == again["session_id"] != other["session_id"]

    play(act)
