"""Real SGLang servers for the tests of this folder: stock, and with our radix backend. Each is ended by its id."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from scripts.engines.server import EngineServer, launch
from scripts.engines.specs import EngineOptions, sglang_missing, sglang_spec
from scripts.smollm2 import MODEL
from tests.engines.sglang.texts import Texts, read_texts

PAGE_TOKENS = 16
# Small gates: the tests' passages are short, and whatever is found is to be served.
OPEN = {"min_reuse_ratio": 0.0, "max_context_share": 1.0, "boundary_recompute_tokens": 16, "second_sight": False}


def start(events: Path | None, *extra: str, **options: object) -> EngineServer:
    missing = sglang_missing()
    if missing:
        pytest.skip(missing)
    # Whenever two requests decode, every few steps one is sent back to the queue: retraction is part of the tests.
    retracting = {"SGLANG_TEST_RETRACT": "1", "SGLANG_TEST_RETRACT_INTERVAL": "5"}
    chosen = EngineOptions(
        extra=("--page-size", str(PAGE_TOKENS), "--enable-cache-report", *extra),
        environment=retracting,
        startup_timeout_s=900.0,
    )
    semblend = None if events is None else {**OPEN, "events": str(events), **options}
    return launch(sglang_spec(chosen, semblend=semblend))


@pytest.fixture(scope="package")
def texts() -> Texts:
    if sglang_missing():
        pytest.skip("no engine, no model")
    return read_texts(MODEL / "tokenizer.json")


@pytest.fixture(scope="package")
def events(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sglang") / "events.jsonl"


@pytest.fixture(scope="package")
def blending(events: Path) -> Iterator[EngineServer]:
    """With our radix backend, and room for some 6,000 tokens: pressure is part of the tests. Ended with this folder: an
    idle SGLang scheduler keeps a core busy."""
    with start(events, "--max-total-tokens", "6144") as server:
        yield server
    assert not Path(f"/proc/{server.pid}").exists(), "the server process was collected"
