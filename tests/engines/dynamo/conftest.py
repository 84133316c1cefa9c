"""A real Dynamo beside the tests: mocker workers, a front-end with the KV router, a NATS server; ended by their ids."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from tests.engines.dynamo.deployment import Deployment, NatsServer, missing


@pytest.fixture(scope="session")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    if (why := missing()) is not None:
        pytest.skip(why)
    with Deployment(tmp_path_factory.mktemp("dynamo")) as running:
        yield running


@pytest.fixture(scope="session")
def nats_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    if (why := missing()) is not None:
        pytest.skip(why)
    with NatsServer(tmp_path_factory.mktemp("nats")) as running:
        yield running
