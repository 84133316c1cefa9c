"""A real SGLang server for the tests of this folder; what it announces and writes. Ended by its id."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from scripts.engines.server import EngineServer
from scripts.engines.specs import sglang_missing
from scripts.models.known import SMOLLM2
from tests.engines.sglang.running import Shared, shared, stop_shared
from tests.engines.sglang.texts import Texts, read_texts


@pytest.fixture(scope="session")
def texts() -> Texts:
    if sglang_missing():
        pytest.skip("no engine, no model")
    return read_texts(SMOLLM2.tokenizer)


@pytest.fixture(scope="session")
def running() -> Iterator[Shared]:
    """Maybe started by other tests, maybe used by others yet: ended with the session."""
    yield shared()
    stop_shared()


@pytest.fixture(scope="session")
def events(running: Shared) -> Path:
    return running.events


@pytest.fixture(scope="session")
def blending(running: Shared) -> EngineServer:
    return running.server
