"""Property tests on shared, noisy cores: slowness of the machine is not a finding. Nor may it keep CI from ending."""

from __future__ import annotations

import os
import signal
import time

import pytest
from hypothesis import HealthCheck, settings

FIXED_EXAMPLES = "FIXED_EXAMPLES"  # the same examples in every run, as in CI; without it each run draws others

settings.register_profile(
    "shared_machine",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=FIXED_EXAMPLES in os.environ,
)
settings.load_profile("shared_machine")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # inherited from a shell's background, and by what tests start
    signal.signal(signal.SIGINT, signal.default_int_handler)

ENGINE_TESTS_END_AT = "ENGINE_TESTS_END_AT"  # seconds since the epoch


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Past the time that was set, no further test with an engine begins: it is skipped, and the summary says so."""
    end = os.environ.get(ENGINE_TESTS_END_AT)
    if end is not None and time.time() > float(end) and item.get_closest_marker("engine") is not None:
        pytest.skip(f"{ENGINE_TESTS_END_AT} has passed, the machine is too slow today: run make test-engines")
