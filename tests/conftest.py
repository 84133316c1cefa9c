"""Property tests on shared, noisy cores: slowness of the machine is not a finding."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("shared_machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared_machine")
