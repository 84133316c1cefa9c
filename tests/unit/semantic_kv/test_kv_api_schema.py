"""Schemathesis against the service in process: whatever the schema allows or forbids, answers keep to the schema."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings

pytest.importorskip("fastapi")
schemathesis = pytest.importorskip("schemathesis")

from semantic_kv.api import Limits, ServiceSettings, create_app  # noqa: E402

_APP = create_app(ServiceSettings(limits=Limits(known_blocks=500, known_requests=50)))
_SCHEMA = schemathesis.openapi.from_asgi("/openapi.json", _APP)
_TIMEOUT_S = 300  # on shared, noisy cores
_SETTINGS = settings(
    max_examples=8, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck)
)
_READ_ONLY = _SCHEMA.include(path="/health")


@_SCHEMA.parametrize()  # type: ignore[untyped-decorator, unused-ignore]
@settings(_SETTINGS, phases=(Phase.generate,))
def test_answers_keep_the_schema(case: Any) -> None:
    case.call_and_validate(timeout=_TIMEOUT_S)


@_READ_ONLY.parametrize()  # type: ignore[untyped-decorator, unused-ignore]
@settings(_SETTINGS, phases=(Phase.explicit,))
def test_corner_cases_keep_the_schema(case: Any) -> None:
    """Undocumented methods, arbitrary headers, and the like."""
    case.call_and_validate(timeout=_TIMEOUT_S)
