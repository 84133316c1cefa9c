"""One server at a time, by kind: pytest groups the tests that name the same kind, so each kind is started once."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
from scripts.engines.specs import vllm_missing
from tests.engines.vllm.connector.connector_server import ConnectorServer, start
from tests.engines.vllm.connector.kinds import KINDS
from tests.engines.vllm.connector.prompts import Texts, read_texts


@pytest.fixture(scope="session")
def server(request: pytest.FixtureRequest) -> Iterator[ConnectorServer]:
    """The server of the kind that the test names by ``parametrize("server", [kind], indirect=True)``."""
    kind = KINDS[request.param]
    missing = vllm_missing(kind.model)
    if missing:
        pytest.skip(missing)
    running = start(kind)
    try:
        yield running
    finally:
        running.server.stop()
        shutil.rmtree(running.folder, ignore_errors=True)


@pytest.fixture(scope="session")
def texts(server: ConnectorServer) -> Texts:
    return read_texts(server.client)
