"""A real vLLM server with the connector and real weights, asked over HTTP; one per model, reset between drivers."""

from __future__ import annotations

import shutil
from collections.abc import Sequence

import pytest
from scripts.models.known import KnownModel
from tests.conformance.adapter import BOTH, Answer
from tests.engines.vllm.connector.client import Ask
from tests.engines.vllm.connector.connector_server import ConnectorServer, Kind, start

from semblend.contract import ContextRisk, Event, Run

RISK = ContextRisk(0, 0, 0.0)
# Everything that is found is loaded, and nothing else becomes a donor or is computed than what the suite asks for.
OPTIONS = {
    "max_context_share": 1.0,
    "min_inexact_tokens": 0,
    "min_reuse_ratio": 0.0,  # what a plan would take on a busy machine decides nothing
    "recompute_fraction": 0.0,
    "refresh_on_repeat": False,
    "prefill_passages": False,
    "min_capture_tokens": 64,
}

_running: dict[str, ConnectorServer] = {}


def stop_servers() -> None:
    while _running:
        _, server = _running.popitem()
        server.server.stop()
        shutil.rmtree(server.folder, ignore_errors=True)


class VllmServer:
    loads = BOTH
    tells_runs = True

    def __init__(self, name: str, model: KnownModel) -> None:
        self.name = name
        if name not in _running:
            stop_servers()
            kind = Kind(OPTIONS, extra=("--block-size", "32", "--max-model-len", "2048"), faulty=True, model=model)
            _running[name] = start(kind)
        self._server = _running[name]
        self._donors: dict[str, list[int]] = {}
        self._server.client.reset(donors=True)
        self._first = len(self._server.events())

    def serve(self, tokens: Sequence[int], salt: str | None = None) -> Answer:
        if salt == "":
            pytest.skip("vLLM's own API refuses an empty salt")
        reply = self._server.client.ask(Ask(tokens, salt=salt))
        report = reply.semblend
        if not report:
            return Answer()  # nothing is reported about a request whose look-up broke, but it was answered
        if report["donor_id"] is not None:
            self._donors[self._server.wait_for_donor(reply)] = list(tokens)
        runs = tuple(
            Run(run["donor_id"], run["donor_start"], run["target_start"], run["length"], RISK) for run in report["runs"]
        )
        boundary = report["exact_prefix_tokens"]
        is_confirmed = reply.outcome == "backend_materialized_reuse"
        return Answer(
            boundary,
            runs[-1].target_end - boundary if runs else 0,
            runs,
            report["computed_tokens"],
            reply.reused_tokens if is_confirmed else None,
            bool(runs) or bool(report["discoveries"]),
            report["reason"],
        )

    def forget_exact(self) -> None:
        self._server.client.reset()

    def forget_donors(self) -> None:
        self._server.client.reset(donors=True)

    def break_look_up(self, broken: bool) -> None:
        self._server.set_fault("lookup: broken on purpose" if broken else "")

    def donor_tokens(self, donor_id: str) -> Sequence[int]:
        return self._donors[donor_id]

    def events(self) -> Sequence[Event]:
        return self._server.events()[self._first :]

    def close(self) -> None:
        self._server.set_fault()
