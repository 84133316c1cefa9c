"""A picker before fault replicas, and an Envoy configured as ``deploy/envoy`` has it; all are ended on leaving."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import pytest
import yaml
from scripts.engines.fronts import binary_of
from scripts.engines.ports import free_port
from tests.attacks.fronts import running_front
from tests.fakes.fault_replica import FaultReplica
from tests.fakes.router_rig import SECRET
from tests.waiting import PATIENCE_S

from semgate.picker.ext_proc import ExternalProcessor
from semgate.picker.pick import Picker
from semgate.picker.service import grpc_server
from semgate.router.gateway import Gateway
from semgate.settings import PickerSettings

ROOT: Final = Path(__file__).parents[2]
Door = Literal["full duplex", "cheap"]
_PATIENCE: Final = f"{PATIENCE_S:.0f}s"
Change = Callable[[dict[str, Any]], None]

needs_envoy = pytest.mark.skipif(
    binary_of("envoy") is None, reason="Envoy is not installed; run python -m scripts.engines.fronts"
)


@dataclass
class PickerRig:
    """``port`` is Envoy's, where clients connect; ``picker_port`` the picker's own."""

    picker: Picker
    picker_port: int
    replicas: tuple[FaultReplica, ...]
    server: Any
    processor: ExternalProcessor
    port: int = 0

    @property
    def gateway(self) -> Gateway:
        return self.picker.gateway

    async def stop(self) -> None:
        """The picker is gone; Envoy and the replicas stay."""
        await self.server.stop(None)

    def replica(self, name: str) -> FaultReplica:
        return next(each for each in self.replicas if each.name == name)

    def endpoint(self, name: str) -> str:
        return next(f"127.0.0.1:{each.port}" for each in self.replicas if each.name == name)

    def seen(self) -> list[str]:
        return [each.name for each in self.replicas for _ in each.seen]


@asynccontextmanager
async def picker_rig(folder: Path, *names: str, **settings: Any) -> AsyncIterator[PickerRig]:
    """Health checks are off unless asked for."""
    replicas = tuple(FaultReplica(name=name) for name in names or ("a", "b"))
    for each in replicas:
        await each.start()
    wanted: dict[str, Any] = {
        "replicas": tuple(f"{each.origin};name={each.name}" for each in replicas),
        "routing_policy": "round_robin",
        "routing_output_dir": folder / "routing",
        "health_seconds": 0.0,
        "load_seconds": 0.0,
        "port": free_port(),
        **settings,
    }
    made = PickerSettings(**wanted)
    gateway = Gateway(made, SECRET)
    picker = Picker(gateway)
    processor = ExternalProcessor(picker)
    server, port = grpc_server(made, processor)
    try:
        await gateway.start()
        await server.start()
        yield PickerRig(picker, port, replicas, server, processor)
    finally:
        await server.stop(None)
        await gateway.stop()
        for each in replicas:
            await each.die()


def envoy_config(door: Door, *, listen: int, engines: Sequence[int], picker: int) -> dict[str, Any]:
    """The shipped file with ports on loopback."""
    config: dict[str, Any] = yaml.safe_load((ROOT / "deploy" / "envoy" / "picker.yaml").read_text(encoding="utf-8"))
    resources = config["static_resources"]
    engines_cluster, picker_cluster = resources["clusters"]
    listener = resources["listeners"][0]
    listener["address"]["socket_address"] = {"address": "127.0.0.1", "port_value": listen}
    _set_endpoints(engines_cluster, engines)
    _set_endpoints(picker_cluster, [picker])
    picker_cluster.pop("health_checks", None)  # started before Envoy
    engines_cluster["connect_timeout"] = picker_cluster["connect_timeout"] = _PATIENCE  # the test's process may stall
    ext_proc_of(config)["message_timeout"] = ext_proc_of(config)["grpc_service"]["timeout"] = _PATIENCE
    if door == "full duplex":
        modes = ext_proc_of(config)["processing_mode"]
        modes["request_body_mode"] = modes["response_body_mode"] = "FULL_DUPLEX_STREAMED"
        modes["request_trailer_mode"] = "SEND"
    return config


def ext_proc_of(config: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = filters_of(config)[0]["typed_config"]
    return found


def filters_of(config: Mapping[str, Any]) -> list[dict[str, Any]]:
    manager = config["static_resources"]["listeners"][0]["filter_chains"][0]["filters"][0]["typed_config"]
    found: list[dict[str, Any]] = manager["http_filters"]
    return found


def _set_endpoints(cluster: dict[str, Any], ports: Sequence[int]) -> None:
    cluster["type"] = "STATIC"
    cluster["load_assignment"]["endpoints"] = [
        {
            "lb_endpoints": [
                {"endpoint": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": port}}}}
                for port in ports
            ]
        }
    ]


@asynccontextmanager
async def envoy_before(
    rig: PickerRig, door: Door, folder: Path, change: Change | None = None
) -> AsyncIterator[PickerRig]:
    """``change`` edits the configuration before Envoy reads it."""
    binary = binary_of("envoy")
    assert binary is not None
    config = envoy_config(
        door,
        listen=free_port(),
        engines=[each.port for each in rig.replicas],
        picker=rig.picker_port,
    )
    if change is not None:
        change(config)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "envoy.json").write_text(json.dumps(config))
    rig.port = config["static_resources"]["listeners"][0]["address"]["socket_address"]["port_value"]
    options = ("--use-dynamic-base-id", "--concurrency", "1", "--log-level", "warning")
    command = (str(binary), "-c", str(folder / "envoy.json"), *options)
    async with running_front("envoy", command, rig.port, folder):
        yield rig
