"""Chats through ``kvmend proxy`` to a server: trace files in a folder, and which chat each record is."""

from __future__ import annotations

import http.client
import json
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from scripts.engines.server import PORT, ServerSpec, launch

from benchmarks.documents import ROOT
from benchmarks.walk.traffic import Chat, Message

TIMEOUT_S = 300.0
PATH = "/v1/chat/completions"


class ChatFailedError(Exception):
    """The server did not answer a chat; the message has its reply."""


def record(
    chats: Sequence[Chat],
    upstream: str,
    folder: Path,
    *,
    model: str,
    flags: Sequence[str] = (),
    max_tokens: int = 16,
    report: Callable[[str], None] = lambda _: None,
) -> None:
    """Writes ``folder/traces`` and ``folder/sent.jsonl``; what an interrupted recording left there is removed."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with launch(proxy_spec(upstream, folder / "traces", flags)) as proxy, (folder / "sent.jsonl").open("w") as sent:
        for chat in chats:
            messages = chat.messages()
            chat.conversation.answers.append(ask(proxy.base_url, model, messages, chat.conversation.name, max_tokens))
            line = {"number": chat.number, "kind": chat.kind, "conversation": chat.conversation.name}
            sent.write(json.dumps(line) + "\n")
            if (chat.number + 1) % 10 == 0 or chat.number + 1 == len(chats):
                report(f"{chat.number + 1} of {len(chats)} chats recorded")


def proxy_spec(upstream: str, traces: Path, flags: Sequence[str] = ()) -> ServerSpec:
    command = (
        *(sys.executable, "-m", "semgate", "proxy", "--port", PORT, "--upstream-base-url", upstream),
        *("--trace-output-dir", str(traces), *flags),
    )
    return ServerSpec("proxy", command, {"PYTHONPATH": f"{ROOT / 'src'}"}, health_path="/readyz", stop_timeout_s=60.0)


def ask(base_url: str, model: str, messages: Sequence[Message], user: str, max_tokens: int, path: str = PATH) -> str:
    """The text of a streamed answer. Greedy, so that a session's history is the same in every run."""
    body: dict[str, Any] = {
        "model": model,
        "messages": list(messages),
        "user": user,
        "max_tokens": max_tokens,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    parts = urlsplit(base_url)
    connection = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=TIMEOUT_S)
    try:
        connection.request("POST", path, json.dumps(body).encode(), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        if answer.status != http.HTTPStatus.OK:
            raise ChatFailedError(f"{path} answered {answer.status}: {answer.read()[:500]!r}")
        text, is_done = [], False
        for line in answer:
            data = line.removeprefix(b"data: ").strip()
            is_done = is_done or data == b"[DONE]"
            if data.startswith(b"{"):
                for choice in json.loads(data).get("choices", ()):
                    text.append(choice["delta"].get("content") or "")
    finally:
        connection.close()
    if not is_done:
        raise ChatFailedError("the stream ended before its end; see the server's log in .cache/engines")
    return "".join(text)


def kinds_of(folder: Path) -> list[str]:
    """The kinds of the recorded chats in the order they were sent, which is the order of the records."""
    lines = (folder / "sent.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line)["kind"] for line in lines]
