"""Start-up: the router is not ready before it is warm and has checked its replicas; a terminal shows a banner."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import PATIENCE_S

from sembase.errors import ConfigurationError
from semgate.router.gateway import Gateway
from semgate.router.operations.settings_check import check_settings
from semgate.router.service import StartupBanner
from semgate.settings import RouterSettings


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def gateway_in(folder: Path, health_seconds: float) -> Gateway:
    settings = RouterSettings(
        replicas=("http://127.0.0.1:9;name=a",),
        routing_policy="round_robin",
        routing_output_dir=folder,
        decision_files=0,
        health_seconds=health_seconds,
    )
    return Gateway(settings, b"a secret of a test, long enough to do")


@pytest.mark.parametrize("health_seconds", [0.0, 60.0])
def test_it_is_not_ready_before_it_is_warm_and_has_looked_once(health_seconds: float, tmp_path: Path) -> None:
    async def act() -> None:
        gateway = gateway_in(tmp_path, health_seconds)
        assert gateway.not_ready_because() == "warming up"
        await gateway.start()
        try:
            if health_seconds:
                assert gateway.not_ready_because() == "the replicas are being checked for the first time"
            async with asyncio.timeout(PATIENCE_S):
                while gateway.not_ready_because() is not None:
                    await asyncio.sleep(0.01)
        finally:
            await gateway.stop()
        assert gateway.not_ready_because() == "shutting down"

    asyncio.run(act())


@pytest.mark.parametrize("several", [{"routers": 2}, {"discovery": "kubernetes", "kubernetes_service": "vllm"}])
def test_several_routers_salt_with_one_secret_or_not_at_all(several: dict[str, Any], tmp_path: Path) -> None:
    replicas = ("http://127.0.0.1:9",)
    with pytest.raises(ConfigurationError, match="--digest-secret-file"):
        check_settings(RouterSettings(replicas=replicas, inject_cache_salt=True, **several))
    check_settings(RouterSettings(replicas=replicas, inject_cache_salt=True))
    shared = tmp_path / "secret"
    check_settings(RouterSettings(replicas=replicas, inject_cache_salt=True, digest_secret_file=shared, **several))


@pytest.mark.parametrize("stream", [Terminal(), io.StringIO()])
def test_a_terminal_shows_address_policy_and_replicas(stream: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", stream)
    banner = StartupBanner(RouterSettings(routing_policy="least_loaded"))
    banner.started(8020, ["a", "b"])
    expected = "semgate: router on http://127.0.0.1:8020, policy least_loaded, to a, b\n"
    assert stream.getvalue() == (expected if stream.isatty() else "")
