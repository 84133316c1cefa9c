"""A real Dynamo beside the tests: mocker workers and a front-end with the KV router; ended by their ids."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from tests.engines.dynamo.deployment import Deployment, missing


@pytest.fixture(scope="session")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    if (why := missing()) is not None:
        pytest.skip(why)
    with Deployment(tmp_path_factory.mktemp("dynamo")) as running:
        yield running
