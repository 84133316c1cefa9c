"""Starts SGLang servers for tests; one of them, with our radix backend, is shared by all tests that can share it.

It announces its donors and has an embedder, and room for some 8,000 tokens: pressure is part of the tests. A start
takes half a minute on a quiet machine, so a test gets a server of its own only where its flags differ.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
from scripts.engines.ports import free_port
from scripts.engines.server import EngineServer, launch
from scripts.engines.specs import EngineOptions, sglang_missing, sglang_spec

PAGE_TOKENS: Final = 16
KEY: Final = b"a key for tests only"
WRONG_KEYS: Final = "wrong-keys"  # beside the events of the shared server; see the plug-in of that name
# Small gates: the tests' passages are short, and whatever is found is to be served.
OPEN: Final = {
    "min_reuse_ratio": 0.0,
    "max_context_share": 1.0,
    "min_inexact_tokens": 0,
    "boundary_recompute_tokens": 16,
    "refresh_on_repeat": False,
}


@dataclass(frozen=True, slots=True)
class Shared:
    """``announcements``: where its donors are announced. What it writes lies in ``folder``."""

    server: EngineServer
    events: Path
    announcements: str
    folder: tempfile.TemporaryDirectory[str]


_shared: list[Shared] = []


def start(
    events: Path | None, *extra: str, environment: Mapping[str, str] | None = None, **options: object
) -> EngineServer:
    """Later flags win, so ``extra`` may overrule; ``options`` are those of our radix backend."""
    missing = sglang_missing()
    if missing:
        pytest.skip(missing)
    # Whenever two requests decode, every few steps one is sent back to the queue: retraction is part of the tests.
    retracting = {"SGLANG_TEST_RETRACT": "1", "SGLANG_TEST_RETRACT_INTERVAL": "5"}
    # Every test caps its pool in tokens. The share of free memory is only not to cap it lower, or refuse to start,
    # because servers of other tests come up meanwhile.
    flags = ("--page-size", str(PAGE_TOKENS), "--enable-cache-report", "--mem-fraction-static", "0.9")
    chosen = EngineOptions(
        extra=(*flags, *extra),
        environment={**retracting, **(environment or {})},
        startup_timeout_s=900.0,
    )
    semblend = None if events is None else {**OPEN, "events": str(events), **options}
    return launch(sglang_spec(chosen, semblend=semblend))


def announcing(folder: Path) -> tuple[str, dict[str, str]]:
    """Where a server will announce its donors, and the settings that make it."""
    key_file, endpoint = folder / "key", f"tcp://127.0.0.1:{free_port()}"
    key_file.write_bytes(KEY)
    return endpoint, {"SEMBLEND_DONOR_EVENTS": endpoint, "SEMBLEND_DONOR_EVENTS_KEY_FILE": str(key_file)}


def shared() -> Shared:
    """Started by the first caller; ended with the session."""
    if not _shared:
        folder = tempfile.TemporaryDirectory(prefix="sglang-shared-")
        endpoint, environment = announcing(Path(folder.name))
        events = Path(folder.name) / "events.jsonl"
        environment |= {"SEMBLEND_EMBEDDER": "jaccard", "WRONG_KEYS_FILE": str(Path(folder.name) / WRONG_KEYS)}
        server = start(events, "--max-total-tokens", "8192", environment=environment)
        _shared.append(Shared(server, events, endpoint, folder))
    return _shared[0]


def stop_shared() -> None:
    while _shared:
        ended = _shared.pop()
        ended.server.stop()
        ended.folder.cleanup()
        assert not Path(f"/proc/{ended.server.pid}").exists(), "the server process was collected"
