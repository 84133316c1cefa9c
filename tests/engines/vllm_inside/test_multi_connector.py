"""Our connector inside vLLM's MultiConnector is lent the model and gets its statistics like one that is alone."""

from __future__ import annotations

import pytest
from tests.engines.vllm_inside.engine import ExampleConnector, MultiConnector

from semblend.integration.vllm import connector_v1
from semblend.integration.vllm.connector_v1 import SemBlendConnectorV1
from semblend.integration.vllm.stats import SemBlendStats
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


def test_its_statistics_come_back_from_another_process() -> None:
    sent = {"SemBlendConnectorV1": {"counters": {"reused_tokens": 912}}}
    found = MultiConnector.build_kv_connector_stats(sent)
    assert found is not None
    stats = found.data["SemBlendConnectorV1"]
    assert isinstance(stats, SemBlendStats)
    assert stats.data["counters"] == {"reused_tokens": 912}


def test_the_module_can_be_loaded_twice() -> None:
    connector_v1._register()
