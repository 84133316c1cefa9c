"""The published connector JSON has three keys and leaves the policy for failed loads to the connector."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.contract.test_seeds import THREE_KEYS
from tests.engines.vllm_inside.tiny import cache_config, engine_config
from vllm.config import KVTransferConfig
from vllm.distributed.kv_transfer.kv_connector.v1 import KVConnectorRole

from semblend.integration.vllm.connector_v1 import SemBlendConnectorV1

pytestmark = pytest.mark.engine


@pytest.mark.parametrize("own_worker", [True, False])
def test_the_connector_sets_the_policy_before_the_scheduler_reads_it(tmp_path: Path, own_worker: bool) -> None:
    config: Any = engine_config(tmp_path, {}, batch_tokens=256, length=512)
    config.scheduler_config.async_scheduling = False
    config.kv_transfer_config = KVTransferConfig(**json.loads(THREE_KEYS))
    assert config.kv_transfer_config.kv_load_failure_policy == "fail", "the engine's default"
    if not own_worker:
        config.parallel_config.worker_cls = "vllm.v1.worker.cpu_worker.CPUWorker"
    connector: Any = SemBlendConnectorV1(config, KVConnectorRole.SCHEDULER, cache_config(8))
    assert (connector._support.usable, connector._support.sparse_forward) == (True, own_worker)
    assert config.kv_transfer_config.kv_load_failure_policy == "recompute"
