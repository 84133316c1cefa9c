"""A connector that is wrong on purpose: every run is loaded one token off. The gates must reject it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from semblend.integration.vllm.connector_v1 import SemBlendConnectorV1


class OffByOneConnector(SemBlendConnectorV1):
    """Plans, claims and reports as the real one; what it loads is the KV of the token before."""

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        commands = self._commands()
        if commands is not None:
            commands.loads = [
                replace(
                    command, runs=tuple(replace(run, donor_start=max(0, run.donor_start - 1)) for run in command.runs)
                )
                for command in commands.loads
            ]
        super().start_load_kv(forward_context, **kwargs)
