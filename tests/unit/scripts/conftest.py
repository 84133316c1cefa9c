"""The scripts are not installed: their tests find them at the root of the checkout."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from scripts.engines.server import ServerSpec

FAKE_ENGINE = Path(__file__).with_name("fake_engine.py")


@pytest.fixture
def fake_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., ServerSpec]:
    """Builds the specification of a fake engine in a given mode; logs go to the test's own folder."""
    monkeypatch.setattr("scripts.engines.server.LOGS", tmp_path / "logs")

    def build(mode: str, startup_timeout_s: float = 30.0, stop_timeout_s: float = 10.0, *extra: str) -> ServerSpec:
        return ServerSpec(
            "fake",
            (sys.executable, str(FAKE_ENGINE), "{port}", mode, str(tmp_path / "child"), *extra),
            startup_timeout_s=startup_timeout_s,
            stop_timeout_s=stop_timeout_s,
        )

    return build
