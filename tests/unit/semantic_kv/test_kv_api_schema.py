"""Schemathesis against the service in process: whatever the schema allows or forbids, answers keep to the schema."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, Phase, settings

pytest.importorskip("fastapi")
schemathesis = pytest.importorskip("schemathesis")

from semantic_kv.api import Limits, ServiceSettings, create_app, jobs  # noqa: E402
from semantic_kv.workload import Workload, make_workload  # noqa: E402

_APP = create_app(ServiceSettings(limits=Limits(known_blocks=500, requests_per_epoch=50)))
_SCHEMA = schemathesis.openapi.from_asgi("/openapi.json", _APP)
_TIMEOUT_S = 300  # on shared, noisy cores
_SETTINGS = settings(
    max_examples=8, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck)
)
_READ_ONLY = _SCHEMA.include(path_regex="^/(health|v1/(policies|cache|metrics))")


def _small(name: str, *, seed: int | None = None) -> Workload:
    """What is asked for is under test here, not what the simulator makes of it."""
    return make_workload(name, seed=seed, sessions=1, requests_per_session=2)


@_SCHEMA.parametrize()  # type: ignore[untyped-decorator, unused-ignore]
@settings(_SETTINGS, phases=(Phase.generate,))
def test_answers_keep_the_schema(case: Any) -> None:
    with patch.object(jobs, "make_workload", _small):
        case.call_and_validate(timeout=_TIMEOUT_S)


@_READ_ONLY.parametrize()  # type: ignore[untyped-decorator, unused-ignore]
@settings(_SETTINGS, phases=(Phase.explicit,))
def test_corner_cases_keep_the_schema(case: Any) -> None:
    """Undocumented methods, arbitrary headers, and the like."""
    case.call_and_validate(timeout=_TIMEOUT_S)
