"""LMCache's server beside vLLM, for tests: ``with start_lmcache() as server: ...``.

``python -m scripts.engines.lmcache`` puts its wheel into ``.engines/lmcache``, a folder that servers get on their path.
What LMCache requires would move packages of the engine (numpy, protobuf, OpenTelemetry) and add CUDA libraries; on a
CPU it runs with what the engine has, so nothing but the wheel is installed.
"""

from __future__ import annotations

import importlib.metadata

from scripts.engines import vllm
from scripts.engines.ports import free_port
from scripts.engines.server import PORT, EngineServer, ServerSpec
from scripts.install import install
from scripts.private_venv import ENGINES, python_of

VERSION = "0.5.6"
FOLDER = ENGINES / "lmcache"
CHUNK_TOKENS = 256  # LMCache stores whole chunks


class LmcacheServer(EngineServer):
    """``connector`` is the entry of ``MultiConnector`` that uses this server."""

    def __init__(self) -> None:
        self._queue_port = free_port()
        command = (
            *(str(python_of(vllm.RECIPE)), "-P", "-m", "lmcache.cli.main", "server"),
            *("--host", "127.0.0.1", "--port", str(self._queue_port), "--http-host", "127.0.0.1", "--http-port", PORT),
            *("--l1-size-gb", "1", "--l1-init-size-gb", "1", "--eviction-policy", "LRU"),
            *("--chunk-size", str(CHUNK_TOKENS), "--disable-observability"),
            *("--supported-transfer-mode", "auto"),  # the CPU build's worker waits for ever for another one
        )
        environment = {"PYTHONPATH": str(FOLDER), "DO_NOT_TRACK": "1"}
        super().__init__(ServerSpec("lmcache", command, environment, health_path="/healthcheck"))

    @property
    def connector(self) -> dict[str, object]:
        return {
            "kv_connector": "LMCacheMPConnector",
            "kv_role": "kv_both",
            "kv_connector_extra_config": {
                "lmcache.mp.host": "tcp://127.0.0.1",
                "lmcache.mp.port": self._queue_port,
            },
        }


def start_lmcache() -> LmcacheServer:
    server = LmcacheServer()
    server.wait_healthy()
    return server


def lmcache_missing() -> str | None:
    """Why it cannot be started here, and what to do about it; ``None`` when it can."""
    found = [each.version for each in importlib.metadata.distributions(name="lmcache", path=[str(FOLDER)])]
    return None if VERSION in found else f"no LMCache {VERSION} in .engines/lmcache; run: make engine-lmcache"


if __name__ == "__main__":
    install(["--target", str(FOLDER), "--no-deps", f"lmcache=={VERSION}"])
