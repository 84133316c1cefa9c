"""Servers with the connector, by kind: what each is started with, and what a test can ask of a running one."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from scripts.engines.server import EngineServer, launch
from scripts.engines.specs import EngineOptions, semblend_flags, vllm_spec
from scripts.models.known import SMOLLM2, KnownModel
from scripts.private_venv import ROOT
from tests.engines.vllm.connector.client import Client, Reply
from tests.waiting import wait_until

from semblend.contract import DonorRegistered, Event, EventLine, decode_line
from semblend.integration.answer_budgets import NONE

HERE = Path(__file__).parent
COMMON = ("--enable-prompt-tokens-details",)
# Gates open: tests are about safety, which must not rest on what the default gates decline.
# Neither what is short nor what takes time on a busy machine is declined.
SHORT: Mapping[str, object] = {"min_inexact_tokens": 0, "min_reuse_ratio": 0.0}
OPEN: Mapping[str, object] = {"max_context_share": 1.0, **SHORT}


@dataclass(frozen=True, slots=True)
class Kind:
    """How one server differs from the default deployment. ``options`` go into ``kv_connector_extra_config``.

    ``dtype``: where the processor has no instructions for bfloat16, that is more than twice as slow as float32.
    """

    options: Mapping[str, object] = field(default_factory=dict)
    extra: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    worker: bool = True
    faulty: bool = False
    kv_events: bool = False
    dtype: str = "float32"
    model: KnownModel = SMOLLM2


@dataclass(slots=True)
class ConnectorServer:
    """A running server and its event stream; ``kv_events_endpoint`` is where the engine announces its exact blocks."""

    server: EngineServer
    folder: Path
    kv_events_endpoint: str
    client: Client

    @property
    def log(self) -> str:
        return self.server.log_path.read_text(encoding="utf-8", errors="replace")

    def events(self) -> list[Event]:
        return [line.event for line in self.event_lines()]

    def event_lines(self) -> list[EventLine]:
        """The stream so far; a line still being written is left for the next reading."""
        path = events_path(self.folder)
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        return [decode_line(line) for line in text[: text.rfind("\n") + 1].splitlines()]

    def events_of(self, reply_or_id: Reply | str) -> list[Event]:
        """The events that name a request; the engine appends to the id it gave the client."""
        wanted = reply_or_id if isinstance(reply_or_id, str) else reply_or_id.request_id
        return [event for event in self.events() if getattr(event, "request_id", "").startswith(wanted)]

    def wait_for_donor(self, reply: Reply) -> str:
        """The donor a request became, once it can be found."""
        donor_id = reply.semblend["donor_id"]
        assert donor_id is not None, f"no donor: {reply.semblend}"
        wait_until(
            lambda: any(isinstance(e, DonorRegistered) and e.donor_id == donor_id for e in self.events()),
            f"donor {donor_id} was not registered",
        )
        return str(donor_id)

    def set_fault(self, name: str = "") -> None:
        """Which fault the faulty connector injects from now on; none without a name."""
        fault_path(self.folder).write_text(name, encoding="utf-8")

    def resident_bytes(self) -> int:
        """Memory of the largest process of the server's group: the one that holds model, cache and donors."""
        pages = [
            int((Path("/proc") / pid / "statm").read_text().split()[1]) for pid in _members(self.server.pid) if pid
        ]
        return max(pages) * 4096


def start(kind: Kind) -> ConnectorServer:
    folder = Path(tempfile.mkdtemp(prefix="connector-"))
    endpoint = f"ipc://{folder}/kv-events"  # the engine binds such an address, so no listener hears of the past
    options = EngineOptions(
        model=kind.model,
        extra=(*COMMON, *_flags(kind, folder, endpoint), *kind.extra),
        dtype=kind.dtype,
        environment={
            "PYTHONPATH": f"{ROOT / 'src'}:{HERE}",  # this checkout, whichever one the engine was installed from
            "FAULT_FILE": str(fault_path(folder)),
            **kind.environment,
        },
        kv_cache_gib=1,
        dev_mode=True,
        threads=1,
        startup_timeout_s=600.0,
    )
    server = launch(vllm_spec(options))
    return ConnectorServer(server, folder, endpoint, Client(server.base_url, kind.model))


def _flags(kind: Kind, folder: Path, endpoint: str) -> tuple[str, ...]:
    own = {"events": str(events_path(folder)), "answer_budgets": NONE}  # not those that someone measured here
    flags = semblend_flags({**own, **kind.options}, worker=kind.worker)
    if kind.faulty:
        transfer = json.loads(flags[1])
        transfer |= {"kv_connector": "FaultyConnector", "kv_connector_module_path": "faulty_connector"}
        flags = (flags[0], json.dumps(transfer), *flags[2:])
    if kind.kv_events:
        announced = {"enable_kv_cache_events": True, "publisher": "zmq", "endpoint": endpoint}
        flags = (*flags, "--kv-events-config", json.dumps(announced))
    return flags


def events_path(folder: Path) -> Path:
    return folder / "events.jsonl"


def fault_path(folder: Path) -> Path:
    return folder / "fault"


def _members(group: int) -> list[str]:
    done = subprocess.run(["ps", "-o", "pid=", "-g", str(group)], capture_output=True, text=True, check=False)
    return done.stdout.split()
