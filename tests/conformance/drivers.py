"""The adapters of the suite by name. Real engines are asked for only where they can be imported."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import pytest
from tests.conformance.adapter import Driver

DRIVERS: Final = (
    "vllm_look_up",
    pytest.param("vllm_scheduler", marks=pytest.mark.engine),
    pytest.param("vllm_server", marks=[pytest.mark.engine, pytest.mark.slow]),
    *(
        pytest.param(name, marks=[pytest.mark.engine, pytest.mark.slow, pytest.mark.more_models])
        for name in ("vllm_server_qwen", "vllm_server_gemma")
    ),
    "sglang_tracker",
    pytest.param("sglang_server", marks=[pytest.mark.engine, pytest.mark.slow]),
    "trtllm_discovery",
    "dynamo_provider",
)
# Random histories on a server only repeat, for minutes, what they show of its scheduler half.
HISTORY_DRIVERS: Final = (
    "vllm_look_up",
    pytest.param("vllm_scheduler", marks=pytest.mark.engine),
    *(pytest.param(name, marks=[pytest.mark.engine, pytest.mark.nightly]) for name in ("vllm_server", "sglang_server")),
    "sglang_tracker",
    "trtllm_discovery",
    "dynamo_provider",
)


def open_driver(name: str, folder: Path, **options: Any) -> Driver | str:
    """The driver, or why it cannot run here. ``options``: ``require_salt``, ``enabled``."""
    match name:
        case "vllm_look_up":
            from tests.conformance.vllm_look_up import VllmLookUp

            return VllmLookUp(**options)
        case "vllm_scheduler":
            if find_spec("vllm") is None:
                return "run with .engines/vllm/bin/python -m pytest -m engine tests/conformance"
            from tests.conformance.vllm_scheduler import VllmScheduler

            return VllmScheduler(folder, **options)
        case "vllm_server" | "vllm_server_qwen" | "vllm_server_gemma":
            return _open_vllm_server(name, options)
        case "sglang_tracker":
            from tests.conformance.sglang_tracker import SglangTracker

            return SglangTracker(**options)
        case "sglang_server":
            from scripts.engines.specs import sglang_missing

            if find_spec("vllm") is not None:
                return "run with the development environment, beside the tests that share its server"
            if (why := sglang_missing()) is not None:
                return why
            if options:
                return "a server of its own for one option is too dear; the tracker is asked"
            from tests.conformance.sglang_server import SglangServer

            return SglangServer()
        case "trtllm_discovery":
            from tests.conformance.trtllm_stub import TrtllmStub

            return TrtllmStub(folder, **options)
        case "dynamo_provider":
            from tests.conformance.dynamo_provider import DynamoProvider

            return DynamoProvider(**options)
    raise ValueError(name)


def _open_vllm_server(name: str, options: dict[str, Any]) -> Driver | str:
    from scripts.engines.specs import vllm_missing
    from scripts.models.known import GEMMA, QWEN_CODER, SMOLLM2

    model = {"vllm_server_qwen": QWEN_CODER, "vllm_server_gemma": GEMMA}.get(name, SMOLLM2)
    if find_spec("vllm") is not None:
        return "run with the development environment"
    if (why := vllm_missing(model)) is not None:
        return why
    if options:
        return "a server of its own for one option is too dear; the look-up and the scheduler are asked"
    from tests.conformance.vllm_server import VllmServer

    return VllmServer(name, model)
