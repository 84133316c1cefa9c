"""A stand-in for an engine with SemBlend, as a process of its own: exact cache, donors, resets, events, streams.

Tokens are words. It serves chat, completions and SGLang's /generate, takes time per computed token, and can be made to
misbehave: refuse resets, lie about them, leak blended blocks into the exact cache. It prints its port first.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from semblend.contract import (
    Declined,
    DonorRegistered,
    Event,
    EventLine,
    LoadAdvertised,
    LookupFinished,
    Materialized,
    encode_line,
)

BLOCK = 16
MIN_RUN = 32
_SRC = Path(__file__).parents[2] / "src"


@dataclass(slots=True)
class Served:
    """What one request found and the answer it gets."""

    request_id: str
    words: list[str]
    cached: int
    reused: int
    answer: list[str]


@dataclass(slots=True)
class Engine:
    options: argparse.Namespace
    lock: threading.Lock = field(default_factory=threading.Lock)
    exact: dict[str | None, set[tuple[str, ...]]] = field(default_factory=dict)
    donors: list[tuple[str | None, str, list[str]]] = field(default_factory=list)
    pending: list[tuple[str | None, str, list[str]]] = field(default_factory=list)
    refused: int = 0
    served: int = 0
    sequence: int = 0

    def serve(self, request_id: str, text: str, tenant: str | None, hints: dict[str, Any], max_tokens: int) -> Served:
        words = text.split()
        with self.lock:
            self.served += 1
            self._register_pending()
            boundary = self._exact_tokens(words, tenant)
            runs = self._runs(words, tenant, boundary) if hints.get("reuse", True) else []
            reused = sum(length for _, length in runs)
            self._tell(request_id, words, boundary, runs, reused)
            if not reused or self.options.leak:
                self._remember(words, tenant)
            else:
                self._remember(words[:boundary], tenant)
            if not reused and hints.get("capture", True) and len(words) >= MIN_RUN:
                self.pending.append((tenant, request_id, words))
                if not self.options.lazy:
                    self._register_pending()
        time.sleep(self.options.ms_per_token / 1000 * (len(words) - boundary - reused))
        answer = words[-max_tokens:]
        for question, scripted in self.options.answers.items():
            if question in text:
                answer = scripted["blended" if reused else "cold"].split()[:max_tokens]
        if reused and self.options.garble:
            answer = [*answer[:1], *("garbled" for _ in answer[1:])]
        return Served(request_id, words, boundary + reused, reused, answer)

    def reset(self, *, external: bool) -> bool:
        with self.lock:
            if self.refused < self.options.refuse_resets:
                self.refused += 1
                return False
            if self.options.deaf:
                return True
            self.exact.clear()
            if external:
                self.donors.clear()
                self.pending.clear()
            return True

    def _exact_tokens(self, words: list[str], tenant: str | None) -> int:
        known = self.exact.get(tenant, set())
        full = (len(words) - 1) // BLOCK
        found = 0
        while found < full and tuple(words[: (found + 1) * BLOCK]) in known:
            found += 1
        return found * BLOCK

    def _remember(self, words: list[str], tenant: str | None) -> None:
        known = self.exact.setdefault(tenant, set())
        known.update(tuple(words[: (i + 1) * BLOCK]) for i in range(len(words) // BLOCK))

    def _runs(self, words: list[str], tenant: str | None, start: int) -> list[tuple[int, int]]:
        """Stretches of at least ``MIN_RUN`` words that some donor of the tenant holds anywhere."""
        held = {
            tuple(donor[i : i + MIN_RUN])
            for owner, _, donor in self.donors
            if owner == tenant
            for i in range(len(donor) - MIN_RUN + 1)
        }
        runs: list[tuple[int, int]] = []
        position = start
        while position + MIN_RUN < len(words):
            end = position
            while end + MIN_RUN < len(words) and tuple(words[end : end + MIN_RUN]) in held:
                end += 1
            if end > position:
                runs.append((position, end - position + MIN_RUN - 1))
                position = end + MIN_RUN - 1
            else:
                position += 1
        return runs

    def _register_pending(self) -> None:
        for tenant, request_id, words in self.pending:
            self.donors.append((tenant, request_id, words))
            self._emit(DonorRegistered(request_id, f"d-{request_id}", str(tenant), len(words)))
        self.pending.clear()

    def _tell(
        self, request_id: str, words: list[str], boundary: int, runs: Sequence[tuple[int, int]], reused: int
    ) -> None:
        reason = None if runs else "no_candidate"
        donors = ("d",) if runs else ()
        self._emit(
            LookupFinished(
                request_id, "ns", len(words), boundary, reused, len(runs), donor_ids=donors, decline_reason=reason
            )
        )
        if not runs:
            self._emit(Declined(request_id, "no_candidate"))
            return
        last = runs[-1][0] + runs[-1][1]
        self._emit(LoadAdvertised(request_id, ("d",), last - boundary, boundary))
        if not self.options.silent_loads:
            self._emit(Materialized(request_id, ("d",), reused, last - boundary - reused, len(runs), 1.0, 2.0))

    def _emit(self, event: Event) -> None:
        if self.options.events is None:
            return
        line = encode_line(EventLine(event, "fake", self.sequence, time.time() * 1000))
        self.sequence += 1
        with self.options.events.open("a", encoding="utf-8") as stream:
            stream.write(line + "\n")


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    engine: Engine

    def parse_request(self) -> bool:
        if not super().parse_request():
            return False
        name, _, value = (self.engine.options.require_header or "").partition(": ")
        if name and self.headers.get(name) != value:
            self._answer(401, b"{}")
            return False
        return True

    def do_GET(self) -> None:
        answers: dict[str, bytes] = {
            "/v1/models": json.dumps({"data": [{"id": "fake-model", "owned_by": "fake"}]}).encode(),
            "/version": json.dumps({"version": self.engine.options.version}).encode(),
            "/health": b"{}",
            "/metrics": b"# TYPE fake_requests counter\nfake_requests_total %d\n" % self.engine.served,
        }
        path = urlsplit(self.path).path
        self._answer(200 if path in answers else 404, answers.get(path, b"{}"))

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        parts = urlsplit(self.path)
        if parts.path == "/reset_prefix_cache":
            external = parse_qs(parts.query).get("reset_external") == ["true"]
            self._answer(200, json.dumps({"success": self.engine.reset(external=external)}).encode())
        elif parts.path == "/flush_cache":
            done = self.engine.reset(external=True)
            self._answer(200 if done else 400, b"Cache flushed.\n")
        elif parts.path in ("/v1/chat/completions", "/v1/completions", "/generate"):
            self._serve(parts.path, json.loads(body))
        else:
            self._answer(404, b"{}")

    def _serve(self, path: str, body: dict[str, Any]) -> None:
        if path == "/generate":
            text, max_tokens = body["text"], body["sampling_params"]["max_new_tokens"]
            engine_id = body["rid"]
        elif path == "/v1/completions":
            text, max_tokens = body["prompt"], body["max_tokens"]
            engine_id = f"cmpl-{self.headers['x-request-id']}-0-{secrets.token_hex(4)}"
        else:
            text, max_tokens = body["messages"][0]["content"], body["max_tokens"]
            engine_id = f"chatcmpl-{self.headers['x-request-id']}-{secrets.token_hex(4)}"
        own_id = engine_id if path == "/generate" else self.headers["x-request-id"]
        if any(mark in text for mark in self.engine.options.fail_on):
            self._answer(500, b'{"error": {"message": "told to fail"}}')
            return
        with self.engine.options.log.open("a") if self.engine.options.log else open("/dev/null", "a") as log:
            log.write(own_id + "\n")
        hints = (body.get("kv_transfer_params") or {}).get("semblend") or {}
        served = self.engine.serve(engine_id, text, body.get("cache_salt"), hints, max_tokens)
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("x-semblend-routing-path", "semantic" if served.reused else "cold")
        self.send_header("connection", "close")
        self.end_headers()
        for event in self._events(path, body, served):
            self.wfile.write(b"data: " + event + b"\n\n")
            self.wfile.flush()
        self.close_connection = True

    def _events(self, path: str, body: dict[str, Any], served: Served) -> list[bytes]:
        details = None if self.engine.options.no_details else {"cached_tokens": served.cached}
        usage = {
            "prompt_tokens": len(served.words),
            "completion_tokens": len(served.answer),
            "prompt_tokens_details": details,
        }
        if path == "/generate":
            events: list[dict[str, Any]] = [
                {
                    "text": " ".join(served.answer[: i + 1]),
                    "meta_info": {
                        "prompt_tokens": len(served.words),
                        "completion_tokens": i + 1,
                        "cached_tokens": served.cached,
                    },
                }
                for i in range(len(served.answer))
            ]
        elif path == "/v1/completions":
            events = [
                {"choices": [{"text": f" {word}", **self._text_logprobs(body, served, i)}]}
                for i, word in enumerate(served.answer)
            ]
            events.append({"choices": [], "usage": usage})
        else:
            events = [{"choices": [{"delta": {"role": "assistant", "content": ""}}]}]
            for i, word in enumerate(served.answer):
                events.append({"choices": [{"delta": {"content": f" {word}"}, **self._chat_logprobs(body, served, i)}]})
            events.append({"choices": [], "usage": usage})
        return [*(json.dumps(event).encode() for event in events), b"[DONE]"]

    def _top(self, served: Served, index: int, count: int) -> dict[str, float]:
        """A loaded prefix shifts the distribution a little, as it does in an engine."""
        shift = 0.05 if served.reused else 0.0
        return {served.answer[index]: -0.2 - shift, **{f"other{i}": -3.0 - i for i in range(count - 1)}}

    def _text_logprobs(self, body: dict[str, Any], served: Served, index: int) -> dict[str, Any]:
        if body.get("logprobs") is None:
            return {}
        top = self._top(served, index, body["logprobs"])
        word = served.answer[index]
        return {"logprobs": {"tokens": [word], "token_logprobs": [top[word]], "top_logprobs": [top]}}

    def _chat_logprobs(self, body: dict[str, Any], served: Served, index: int) -> dict[str, Any]:
        if not body.get("logprobs"):
            return {}
        top = self._top(served, index, body["top_logprobs"])
        word = served.answer[index]
        listed = [{"token": token, "logprob": value} for token, value in top.items()]
        return {"logprobs": {"content": [{"token": word, "logprob": top[word], "top_logprobs": listed}]}}

    def _answer(self, code: int, body: bytes) -> None:
        self.send_response(code)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is what some tests are about."""


@contextmanager
def running(*flags: str | Path) -> Iterator[str]:
    """The server in a process of its own; its address."""
    command = [sys.executable, __file__, *map(str, flags)]
    environment = {**os.environ, "PYTHONPATH": str(_SRC)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.kill()


def _read_json(path: str) -> Any:
    return json.loads(Path(path).read_text(encoding="utf-8"))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--events", type=Path)
    parser.add_argument("--log", type=Path, help="ids of the requests served, one per line")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--ms-per-token", type=float, default=0.0)
    parser.add_argument("--refuse-resets", type=int, default=0, help="the first N resets answer success: false")
    parser.add_argument("--deaf", action="store_true", help="resets claim success and clear nothing")
    parser.add_argument("--lazy", action="store_true", help="donors are registered when the next request comes")
    parser.add_argument("--leak", action="store_true", help="blended blocks reach the exact cache")
    parser.add_argument("--answers", type=_read_json, default={}, help="a file {question: {cold, blended}}")
    parser.add_argument("--garble", action="store_true", help="blended answers differ from cold ones")
    parser.add_argument("--silent-loads", action="store_true", help="loads are advertised and never confirmed")
    parser.add_argument("--no-details", action="store_true", help="usage does not say what was cached")
    parser.add_argument("--version", default="1.2.3", help="what the engine calls itself")
    parser.add_argument("--require-header", help="answer 401 without this header")
    parser.add_argument("--fail-on", action="append", default=[], help="answer 500 to prompts with this text")
    Handler.engine = Engine(parser.parse_args())
    server = Server(("127.0.0.1", Handler.engine.options.port), Handler)
    sys.stdout.write(f"{server.server_address[1]}\n")
    sys.stdout.flush()
    server.serve_forever()


if __name__ == "__main__":
    main()
