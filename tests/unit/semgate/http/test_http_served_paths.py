"""Which paths a gateway forwards, and the pages it answers itself."""

from __future__ import annotations

import asyncio
import json
from collections.abc import MutableMapping
from typing import Any

import pytest

from semgate.http.served_paths import ForwardedPaths, allows, decoded_path, send_own_page


@pytest.mark.parametrize(
    ("path", "pattern"),
    [
        ("/v1/models", "/v1/models"),
        ("/v1/models/a", "/v1/models/*"),
        ("/v1/models/../admin", None),
        ("/v1/other", None),
        ("/V1/models", None),
        ("/v1/models/Qwen/Qwen2.5", "/v1/models/*"),
        ("/v1/models/%2e%2e/admin", None),
        ("/v1/models/a\n", None),
        ("/v1/models/a\x00", None),
    ],
)
def test_a_path_is_forwarded_only_under_a_pattern(path: str, pattern: str | None) -> None:
    assert ForwardedPaths(("/v1/models", "/v1/models/*")).pattern_of(path) == pattern


@pytest.mark.parametrize(
    ("target", "path"),
    [
        ("/v1/models?x=/../", "/v1/models"),
        ("/v1/%6dodels/a%2fb", "/v1/models/a/b"),
        ("/v1/models/%2e%2e/admin", "/v1/models/../admin"),
        ("/v1/models/%252e%252e/admin", "/v1/models/%2e%2e/admin"),
        ("/v1/models/\xe9", ""),
    ],
)
def test_a_target_is_decoded_once(target: str, path: str) -> None:
    assert decoded_path(target) == path


@pytest.mark.parametrize("path", ["/v1/models", "/v1/models/", "/v1/models/a"])
def test_models_are_only_read(path: str) -> None:
    assert [method for method in ("GET", "HEAD", "OPTIONS", "POST", "PUT") if allows(method, path)] == [
        "GET",
        "HEAD",
        "OPTIONS",
    ]
    assert allows("POST", "/v1/completions")
    assert not allows("PUT", "/v1/completions")


def test_a_pattern_cannot_admit_a_path_that_climbs() -> None:
    assert ForwardedPaths(("/v1/../admin", "*")).pattern_of("/v1/../admin") is None


@pytest.mark.parametrize(
    ("path", "readiness", "status", "body"),
    [
        ("/healthz", {"status": "stopping"}, 200, b'{"status": "alive"}'),
        ("/readyz", {"status": "ready"}, 200, b'{"status": "ready"}'),
        ("/readyz", {"status": "not ready", "reason": "x"}, 503, b'{"status": "not ready", "reason": "x"}'),
        ("/metrics", {"status": "ready"}, 200, b"m 1\n"),
        ("/other", {"status": "ready"}, None, None),
    ],
)
def test_own_pages(path: str, readiness: dict[str, str], status: int | None, body: bytes | None) -> None:
    sent: list[MutableMapping[str, Any]] = []

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    assert asyncio.run(send_own_page(send, path, lambda: readiness, lambda: b"m 1\n")) is (status is not None)
    assert [message.get("status") for message in sent[:1]] == ([status] if status else [])
    assert [message.get("body") for message in sent[1:]] == ([body] if body else [])
    if path == "/readyz":
        assert json.loads(sent[1]["body"]) == readiness


def test_the_metrics_are_no_page_of_the_clients_port() -> None:
    sent: list[MutableMapping[str, Any]] = []

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    assert asyncio.run(send_own_page(send, "/metrics", lambda: {"status": "ready"})) is False
    assert sent == []
