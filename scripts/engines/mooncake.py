"""A Mooncake Store on free loopback ports, from its wheel: ``with start_mooncake() as store: ...``.

One master, which knows where objects are, and one node, which holds their bytes in memory. Each can be ended alone.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import TracebackType
from typing import Self

from scripts.engines.ports import free_port
from scripts.engines.server import PORT, EngineServer, ServerSpec, launch

STARTUP_TIMEOUT_S = 300.0
LEASE_MS = 500  # how long an object that was read cannot be evicted


class MooncakeStore:
    """``url`` is what ``fleet_store`` takes. Keeps nothing on disk."""

    def __init__(self, node_bytes: int) -> None:
        self._binaries = _binaries()
        self._rpc_port = free_port()
        self._node_bytes = node_bytes
        self.master = self._launch_master(None)
        try:
            self.node = self._launch_node()
        except BaseException:
            self.master.stop()
            raise

    @property
    def url(self) -> str:
        return f"mooncake://127.0.0.1:{self._rpc_port}"

    def restart_master(self) -> None:
        """On its old ports. It knows nothing of before; the node finds it again."""
        self.master.stop()
        self.master = self._launch_master(self.master.port)

    def restart_node(self) -> None:
        """Empty."""
        self.node.stop()
        self.node = self._launch_node()

    def stop(self) -> None:
        self.node.stop()
        self.master.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _launch_master(self, port: int | None) -> EngineServer:
        command = (
            str(self._binaries / "mooncake_master"),
            *("--rpc_address=127.0.0.1", f"--rpc_port={self._rpc_port}"),
            *("--metrics_host=127.0.0.1", f"--metrics_port={PORT}", "--enable_metric_reporting=false"),
            f"--default_kv_lease_ttl={LEASE_MS}",
        )
        return launch(ServerSpec("mooncake-master", command, port=port, startup_timeout_s=STARTUP_TIMEOUT_S))

    def _launch_node(self) -> EngineServer:
        command = (
            str(self._binaries / "mooncake_client"),
            *("--host=127.0.0.1", f"--port={free_port()}", "--enable_http_server", f"--http_port={PORT}"),
            *("--metadata_server=P2PHANDSHAKE", f"--master_server_address=127.0.0.1:{self._rpc_port}"),
            f"--global_segment_size={self._node_bytes} B",
        )
        environment = {"MC_TCP_BIND_ADDRESS": "127.0.0.1"}
        return launch(ServerSpec("mooncake-node", command, environment, startup_timeout_s=STARTUP_TIMEOUT_S))


def start_mooncake(node_bytes: int = 1 << 30) -> MooncakeStore:
    """Raises ``ImportError`` where the wheel is not installed."""
    return MooncakeStore(node_bytes)


def mooncake_missing() -> str | None:
    """Why the store cannot be started here, and what to do about it; ``None`` when it can."""
    try:
        import mooncake.store  # noqa: F401
    except ModuleNotFoundError:
        return "no Mooncake Store; run: pip install -e '.[mooncake]'"
    except ImportError as error:
        return f"Mooncake Store cannot be loaded ({error}); run: apt-get install libibverbs1"
    return None


def _binaries() -> Path:
    found = importlib.util.find_spec("mooncake")
    if found is None or found.origin is None:
        raise ImportError("the wheel mooncake-transfer-engine-non-cuda is not installed")
    return Path(found.origin).parent
