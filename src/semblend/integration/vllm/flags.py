"""The flags that put SemBlend into a vLLM server: options in, words of a command line out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from semblend.integration.vllm.support import WORKER_CLASS

CONNECTOR: Final = "semblend.integration.vllm.connector_v1:SemBlendConnectorV1"
TRANSFER_FLAG: Final = "--kv-transfer-config"
WORKER_FLAG: Final = "--worker-cls"


def transfer_config(options: Mapping[str, Any] | None = None, *, connector: str = CONNECTOR) -> dict[str, Any]:
    """``options`` becomes ``kv_connector_extra_config``. ``connector`` is ``module:Class``."""
    module, _, name = connector.partition(":")
    return {
        "kv_connector": name,
        "kv_connector_module_path": module,
        "kv_role": "kv_both",
        "kv_load_failure_policy": "recompute",
        "kv_connector_extra_config": dict(options or {}),
    }


def serve_flags(
    options: Mapping[str, Any] | None = None, *, worker: bool = True, connector: str = CONNECTOR
) -> tuple[str, ...]:
    """Without ``worker`` the server can only load prefixes. ``connector`` may name a subclass of ours."""
    flags = (TRANSFER_FLAG, json.dumps(transfer_config(options, connector=connector)))
    return (*flags, WORKER_FLAG, WORKER_CLASS) if worker else flags
