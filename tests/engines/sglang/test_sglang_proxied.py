"""`semgate proxy` in front of a real SGLang server."""

from __future__ import annotations

from pathlib import Path

import pytest
from scripts.engines.server import EngineServer
from tests.engines.proxied import check_what_passes
from tests.unit.semgate.proxy.running_proxy import play

pytestmark = [pytest.mark.engine, pytest.mark.slow]


def test_it_passes_everything_and_records_what_the_engine_reported(blending: EngineServer, tmp_path: Path) -> None:
    play(lambda: check_what_passes(blending.base_url, tmp_path / "proxy"))
