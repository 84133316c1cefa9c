"""Our connector inside vLLM's MultiConnector is lent the model like one that is alone."""

from __future__ import annotations

import pytest
from tests.engines.vllm_inside.engine import ExampleConnector, MultiConnector

from semblend.integration.vllm.connector_v1 import SemBlendConnectorV1
from semblend.integration.vllm.worker import own_connectors

pytestmark = pytest.mark.engine


def test_it_is_found_alone_among_others_and_nested() -> None:
    own, other = (SemBlendConnectorV1.__new__(SemBlendConnectorV1), ExampleConnector.__new__(ExampleConnector))
    assert own_connectors(own) == [own]
    assert own_connectors(other) == []
    multi, nested = MultiConnector.__new__(MultiConnector), MultiConnector.__new__(MultiConnector)
    multi._connectors = [other, own]
    assert own_connectors(multi) == [own]
    nested._connectors = [multi]
    assert own_connectors(nested) == [own]
