"""Routers as processes: ours, ``sglang-router`` and ``vllm-router``, each in front of the same replicas.

One function per router gives a ``ServerSpec``; ``load.py`` and ``fleet.py`` start them. All get the same job: choose
by cache where they can, no request limit, no log line per request.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from scripts.engines import routers
from scripts.engines.ports import free_port
from scripts.engines.server import PORT, ServerSpec
from scripts.private_venv import python_of

_NO_LIMIT = 100_000
_QUIET = {"RUST_LOG": "warn", "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}


def semgate(
    replicas: Sequence[str],
    policy: str,
    output: Path,
    *,
    block_tokens: int = 16,
    more: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> ServerSpec:
    """Ours. A replica is ``URL[;events=..][;replay=..]``; decisions are written as they are by default."""
    command = (
        *(sys.executable, "-m", "semgate", "router", "--host", "127.0.0.1", "--port", PORT),
        *("--replicas", ",".join(replicas), "--routing-policy", policy, "--block-tokens", str(block_tokens)),
        *("--routing-output-dir", str(output), "--log-level", "warning", *more),
    )
    return ServerSpec(
        f"semgate-{policy}", command, dict(environment or {}), health_path="/readyz", startup_timeout_s=90.0
    )


def sglang_router(urls: Sequence[str], policy: str = "cache_aware") -> ServerSpec:
    command = (
        *(str(python_of(routers.RECIPE)), "-m", "sglang_router.launch_router", "--host", "127.0.0.1", "--port", PORT),
        *("--worker-urls", *urls, "--policy", policy, "--log-level", "warn"),
        *("--prometheus-port", str(free_port()), "--max-concurrent-requests", str(_NO_LIMIT)),
    )
    return ServerSpec(f"sglang-router-{policy}", command, _QUIET, health_path="/readiness", startup_timeout_s=60.0)


def vllm_router(urls: Sequence[str], policy: str = "cache_aware") -> ServerSpec:
    command = (
        *(str(python_of(routers.RECIPE)), "-m", "vllm_router.launch_router", "--host", "127.0.0.1", "--port", PORT),
        *("--worker-urls", *urls, "--policy", policy, "--log-level", "warning"),
        *("--prometheus-port", str(free_port()), "--max-concurrent-requests", str(_NO_LIMIT)),
    )
    return ServerSpec(f"vllm-router-{policy}", command, _QUIET, health_path="/health", startup_timeout_s=60.0)


RIVALS: Mapping[str, Callable[[Sequence[str]], ServerSpec]] = {
    "sglang-router": sglang_router,
    "vllm-router": vllm_router,
}


def missing() -> str | None:
    return None if routers.is_installed() else "no routers in .engines/routers; run: python -m scripts.engines.routers"
