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
KEPT_LEASE_MS = 1_800_000  # with snapshots: a master that is restored forgets objects whose lease is over
SNAPSHOT_S = 2


class MooncakeStore:
    """``url`` is what ``fleet_store`` takes. The master keeps nothing on disk unless it has a folder for snapshots.

    With snapshots, objects that were read in the last ``KEPT_LEASE_MS`` survive the master; until then none is evicted.
    """

    def __init__(self, node_bytes: int, snapshots: Path | None = None) -> None:
        self._snapshots = snapshots
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
        """On its old ports. Without snapshots it knows nothing of before; the node finds it again."""
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
        command: tuple[str, ...] = (
            str(self._binaries / "mooncake_master"),
            *("--rpc_address=127.0.0.1", f"--rpc_port={self._rpc_port}"),
            *("--metrics_host=127.0.0.1", f"--metrics_port={PORT}", "--enable_metric_reporting=false"),
            f"--default_kv_lease_ttl={LEASE_MS if self._snapshots is None else KEPT_LEASE_MS}",
        )
        environment: dict[str, str] = {}
        if self._snapshots is not None:
            command += (
                *("--enable_snapshot=true", "--enable_snapshot_restore=true", "--snapshot_object_store_type=local"),
                f"--snapshot_interval_seconds={SNAPSHOT_S}",
            )
            environment = {"MOONCAKE_SNAPSHOT_LOCAL_PATH": str(self._snapshots)}
        spec = ServerSpec("mooncake-master", command, environment, port=port, startup_timeout_s=STARTUP_TIMEOUT_S)
        return launch(spec)

    def _launch_node(self) -> EngineServer:
        command = (
            str(self._binaries / "mooncake_client"),
            *("--host=127.0.0.1", f"--port={free_port()}", "--enable_http_server", f"--http_port={PORT}"),
            *("--metadata_server=P2PHANDSHAKE", f"--master_server_address=127.0.0.1:{self._rpc_port}"),
            f"--global_segment_size={self._node_bytes} B",
        )
        environment = {"MC_TCP_BIND_ADDRESS": "127.0.0.1"}
        return launch(ServerSpec("mooncake-node", command, environment, startup_timeout_s=STARTUP_TIMEOUT_S))


def start_mooncake(node_bytes: int = 1 << 30, snapshots: Path | None = None) -> MooncakeStore:
    """``snapshots``: a folder for those of the master. Raises ``ImportError`` where the wheel is not installed."""
    return MooncakeStore(node_bytes, snapshots)


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
