"""Drivers are found from the root of the checkout; each test gets every driver that can run in this interpreter."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.conformance.adapter import Driver
from tests.conformance.drivers import DRIVERS, open_driver


def pytest_sessionfinish() -> None:
    """The servers that drivers share end with the session, unless their own tests have ended them."""
    if (vllm := sys.modules.get("tests.conformance.vllm_server")) is not None:
        vllm.stop_servers()
    if (module := sys.modules.get("tests.engines.sglang.running")) is not None:
        module.stop_shared()


@pytest.fixture(params=DRIVERS)
def adapter(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Driver]:
    driver = open_driver(request.param, tmp_path)
    if isinstance(driver, str):
        pytest.skip(driver)
    yield driver
    driver.close()
