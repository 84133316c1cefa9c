"""A stand-in for an OpenAI-compatible (and SGLang) server, in a process of its own: its cost is not the client's.

Every first token carries ``sent_at``, the server's clock when it was written. On Linux that clock is the same for all
processes, so a test can say how late a client's own time stamp is. A request's ``fake`` field asks for faults.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

WORDS = ("alpha", " beta", ' "quoted"', " gamma\\n", " ünïcode", " delta", " 42", ".")


@dataclass
class Shared:
    """What all connections of the server know."""

    ttft_ms: float
    itl_ms: float
    tokens: int
    seen: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=50))
    requests: int = 0
    generated: int = 0
    open_streams: int = 0
    peak_streams: int = 0
    resets: int = 0
    not_ready: int = 0
    ends_after: int = 0  # streams; then the process is gone, as if it had been killed
    ended: int = 0
    hold_streams: int = 0  # after its first token a stream waits until so many have been open at once


class Connection(asyncio.Protocol):
    def __init__(self, shared: Shared) -> None:
        self.shared = shared
        self.buffer = b""
        self.transport: asyncio.Transport
        self.timer: asyncio.TimerHandle | None = None
        self.streaming = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        if self.timer is not None:
            self.timer.cancel()
        self.finish()

    def finish(self) -> None:
        if self.streaming:
            self.streaming = False
            self.shared.open_streams -= 1

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        head, found, rest = self.buffer.partition(b"\r\n\r\n")
        if not found:
            return
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        length = int(headers.get("content-length", "0"))
        if len(rest) < length:
            return
        self.buffer = rest[length:]
        method, path, _ = first.split(" ")
        self.serve(method, path, headers, rest[:length])

    def serve(self, method: str, path: str, headers: dict[str, str], body: bytes) -> None:
        shared = self.shared
        if method == "GET" and path == "/v1/models":
            if shared.not_ready > 0:
                shared.not_ready -= 1
                self.answer(503, b"loading")
            else:
                self.answer(200, json.dumps({"object": "list", "data": [{"id": "fake-model"}]}).encode())
        elif method == "GET" and path == "/metrics":
            self.answer(200, metrics(shared).encode())
        elif method == "GET" and path == "/seen":
            state = {"seen": list(shared.seen), "peak_streams": shared.peak_streams, "resets": shared.resets}
            self.answer(200, json.dumps(state).encode())
        elif path in ("/health", "/reset_prefix_cache", "/flush_cache"):
            shared.resets += path != "/health"
            self.answer(200 if shared.not_ready == 0 else 503, b"")
        elif method == "POST" and path in ("/v1/chat/completions", "/v1/completions", "/generate"):
            self.stream(path, headers, json.loads(body))
        else:
            self.answer(404, b'{"error": "no such path"}')

    def answer(self, code: int, body: bytes) -> None:
        self.transport.write(b"HTTP/1.1 %d X\r\ncontent-length: %d\r\n\r\n" % (code, len(body)) + body)

    def stream(self, path: str, headers: dict[str, str], body: dict[str, Any]) -> None:
        shared = self.shared
        fake = body.get("fake", {})
        shared.requests += 1
        shared.seen.append({"path": path, "headers": headers, "body": body})
        if code := fake.get("http"):
            self.answer(code, b'{"error":{"message":"as you wished"}}')
            return
        if fake.get("fault") == "close_before_answer":
            self.transport.abort()
            return
        shared.open_streams += 1
        shared.peak_streams = max(shared.peak_streams, shared.open_streams)
        self.streaming = True
        if "max_new_tokens" in body.get("sampling_params", {}):
            wanted = body["sampling_params"]["max_new_tokens"]
        else:
            wanted = body.get("max_tokens", shared.tokens)
        dialect = {"/v1/chat/completions": chat, "/v1/completions": completions, "/generate": generate}[path]
        events = dialect(body, min(wanted, fake.get("tokens", shared.tokens)))
        if body.get("stream") is False:
            self.finish()
            self.answer(200, in_one_piece([json.loads(event) for event in events]))
            return
        newline = b"\r\n" if fake.get("crlf") else b"\n"
        route = b"x-semblend-routing-path: semantic\r\nX-Semblend-Routing-Worker: w1\r\nserver: fake\r\n"
        self.transport.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n" + route + b"transfer-encoding: chunked\r\n\r\n"
        )
        if path == "/v1/chat/completions":
            self.piece(b"data: " + next(events) + newline * 2)
        wait = fake.get("ttft_ms", shared.ttft_ms) / 1000.0
        self.timer = asyncio.get_running_loop().call_later(wait, self.step, events, fake, newline, 0)

    def step(self, events: Iterator[bytes], fake: dict[str, Any], newline: bytes, number: int) -> None:
        """One token, then a timer for the next; what follows the last token comes at once."""
        fault = fake.get("fault")
        if fault == "hang":
            return
        loop, pause = asyncio.get_running_loop(), fake.get("itl_ms", self.shared.itl_ms) / 1000.0
        if number and self.shared.peak_streams < self.shared.hold_streams:
            self.timer = loop.call_later(pause, self.step, events, fake, newline, number)
            return
        if fault == "reset_in_stream" and number == 2:
            self.transport.abort()
            return
        if fault == "error_event" and number == 2:
            self.piece(b'data: {"error":{"message":"out of memory","code":500}}' + newline * 2)
            self.last(newline, done=True)
            return
        if fault == "garbage" and number == 1:
            self.piece(b": a comment\n\nevent: odd\ndata: {not json\n\n")
        event = next(events, None)
        if event is None:
            self.last(newline, done=fault != "no_done")
            return
        whole = b"data: " + event + newline * 2
        if fake.get("split"):  # an event over two reads of the client
            middle = len(whole) // 2
            self.piece(whole[:middle])
            self.piece(whole[middle:])
        else:
            self.piece(whole)
        if b'"usage"' in event or b'"final"' in event:
            if fault == "no_usage":
                raise AssertionError("usage was to be left out")
            self.last(newline, done=fault != "no_done")
            return
        self.shared.generated += 1
        self.timer = loop.call_later(pause, self.step, events, fake, newline, number + 1)

    def piece(self, data: bytes) -> None:
        self.transport.write(b"%x\r\n%b\r\n" % (len(data), data))

    def last(self, newline: bytes, *, done: bool) -> None:
        if done:
            self.piece(b"data: [DONE]" + newline * 2)
        self.transport.write(b"0\r\n\r\n")
        self.finish()
        self.shared.ended += 1
        if self.shared.ended == self.shared.ends_after:
            os._exit(1)


def _first(number: int) -> dict[str, float]:
    return {"sent_at": time.perf_counter()} if number == 0 else {}


def _usage(body: dict[str, Any], tokens: int) -> dict[str, Any]:
    prompt = body.get("prompt") or body.get("messages", [{"content": ""}])[0]["content"]
    count = len(prompt.split()) if isinstance(prompt, str) else len(prompt)
    cached = body.get("fake", {}).get("cached")
    details = {} if cached is None else {"prompt_tokens_details": {"cached_tokens": cached}}
    return {"prompt_tokens": count, "completion_tokens": tokens, "total_tokens": count + tokens, **details}


def chat(body: dict[str, Any], tokens: int) -> Iterator[bytes]:
    name = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "model": "fake-model"}
    yield json.dumps({**name, "choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]}).encode()
    for i in range(tokens):
        word = WORDS[i % len(WORDS)]
        choice: dict[str, Any] = {"index": 0, "delta": {"content": word}, "finish_reason": None}
        if body.get("logprobs"):
            top = [{"token": t, "logprob": v} for t, v in ((word, -0.1), (" other", -2.5))][: body["top_logprobs"]]
            choice["logprobs"] = {"content": [{"token": word, "logprob": -0.1, "top_logprobs": top}]}
        yield json.dumps({**name, "choices": [choice], **_first(i)}, ensure_ascii=False, separators=(",", ":")).encode()
    evidence = {"kv_transfer_params": {"semblend": {"reused_tokens": 64}}} if body.get("fake", {}).get("kv") else {}
    yield (
        json.dumps(
            {**name, "choices": [{"index": 0, "delta": {"content": ""}, "finish_reason": "length"}], **evidence}
        ).encode()
        if evidence
        else b'{"choices":[]}'
    )
    if body.get("fake", {}).get("fault") != "no_usage":
        yield json.dumps({**name, "choices": [], "usage": _usage(body, tokens)}).encode()


def completions(body: dict[str, Any], tokens: int) -> Iterator[bytes]:
    name = {"id": "cmpl-1", "object": "text_completion"}
    for i in range(tokens):
        word = WORDS[i % len(WORDS)]
        choice: dict[str, Any] = {"index": 0, "text": word, "finish_reason": None}
        if body.get("logprobs") is not None:
            choice["logprobs"] = {"tokens": [word], "token_logprobs": [-0.1], "top_logprobs": [{word: -0.1, "x": -3}]}
        yield json.dumps({**name, "choices": [choice], "usage_later": None, **_first(i)}).encode()
    if body.get("fake", {}).get("fault") != "no_usage":
        yield json.dumps({**name, "choices": [], "usage": _usage(body, tokens)}).encode()


def generate(body: dict[str, Any], tokens: int) -> Iterator[bytes]:
    text = ""
    prompt = body.get("text") or body.get("input_ids")
    count = len(prompt.split()) if isinstance(prompt, str) else len(prompt or ())
    logprobs: list[Any] = []
    tops: list[Any] = []
    for i in range(tokens + 1):  # the last event repeats the whole with its reason to finish
        if i < tokens:
            text += WORDS[i % len(WORDS)]
            logprobs.append([-0.1, i, WORDS[i % len(WORDS)]])
            tops.append([[-0.1, i, WORDS[i % len(WORDS)]], [-2.0, 999, None]])
        meta: dict[str, Any] = {
            "id": body.get("rid"),
            "finish_reason": None if i < tokens else {"type": "length", "length": tokens},
            "prompt_tokens": count,
            "completion_tokens": min(i + 1, tokens),
            "cached_tokens": body.get("fake", {}).get("cached", 0),
        }
        if body.get("return_logprob"):
            meta |= {"output_token_logprobs": logprobs, "output_top_logprobs": tops}
        final = {"final": True} if i == tokens else {}
        yield json.dumps({"text": text, "meta_info": meta, **final, **_first(i)}).encode()


def in_one_piece(events: list[dict[str, Any]]) -> bytes:
    """What a server answers that was asked not to stream."""
    if "meta_info" in events[-1]:
        return json.dumps(events[-1]).encode()
    choices = [event["choices"][0] for event in events if event["choices"]]
    whole: dict[str, Any] = {"index": 0, "finish_reason": "length"}
    if "delta" in choices[0]:
        text = "".join(choice["delta"]["content"] for choice in choices)
        whole["message"] = {"role": "assistant", "content": text, "tool_calls": []}
    else:
        whole["text"] = "".join(choice["text"] for choice in choices)
    reports = [event["kv_transfer_params"] for event in events if "kv_transfer_params" in event]
    evidence = {"kv_transfer_params": reports[0]} if reports else {}
    return json.dumps({"choices": [whole], "usage": events[-1].get("usage"), **evidence}).encode()


def metrics(shared: Shared) -> str:
    return (
        "# HELP fake:generation_tokens_total Tokens.\n# TYPE fake:generation_tokens_total counter\n"
        f'fake:generation_tokens_total{{model_name="fake-model"}} {shared.generated}\n'
        "# TYPE fake:requests_total counter\n"
        f"fake:requests_total {shared.requests}\n"
        "# TYPE fake:streams gauge\n"
        f"fake:streams {shared.open_streams}\n"
    )


async def serve(options: argparse.Namespace) -> None:
    shared = Shared(
        options.ttft_ms,
        options.itl_ms,
        options.tokens,
        not_ready=options.not_ready,
        hold_streams=options.hold,
        ends_after=options.ends_after,
    )
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(shared), "127.0.0.1", options.port, backlog=4096)
    print(json.dumps({"port": server.sockets[0].getsockname()[1]}), flush=True)
    stop = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    # The test's end closes our stdin: no server outlives the process that started it.
    loop.add_reader(sys.stdin, stop.set)
    await stop.wait()
    server.close()


@contextmanager
def running(
    ttft_ms: float = 5.0,
    itl_ms: float = 1.0,
    tokens: int = 8,
    port: int = 0,
    not_ready: int = 0,
    hold: int = 0,
    ends_after: int = 0,
) -> Iterator[str]:
    """The server in its own process; gives its address and takes it down again."""
    arguments = {"ttft-ms": ttft_ms, "itl-ms": itl_ms, "tokens": tokens, "port": port, "not-ready": not_ready}
    arguments |= {"hold": hold, "ends-after": ends_after}
    command = [sys.executable, str(Path(__file__)), *(f"--{name}={value}" for name, value in arguments.items())]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{json.loads(process.stdout.readline())['port']}"
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=5)
        process.kill()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
        process.wait()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--ttft-ms", type=float, default=5.0)
    parser.add_argument("--itl-ms", type=float, default=1.0)
    parser.add_argument("--tokens", type=int, default=8)
    parser.add_argument("--not-ready", type=int, default=0, help="polls to answer with 503 first")
    parser.add_argument("--ends-after", type=int, default=0, help="streams after which the process ends")
    parser.add_argument("--hold", type=int, default=0, help="streams that must be open at once before any ends")
    asyncio.run(serve(parser.parse_args()))


if __name__ == "__main__":
    main()
