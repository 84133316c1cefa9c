"""The command line of a server, as a user would type it: words in, engine, model and flags out.

Also the other way round: the same command with the flags that put SemBlend in.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Any, Final

from sembase.command_line import take_value
from sembase.errors import ConfigurationError
from semblend.integration.vllm.flags import CONNECTOR, TRANSFER_FLAG, WORKER_FLAG, serve_flags

VLLM: Final = "vllm"
SGLANG: Final = "sglang"
# How servers are started: the words of the program, and whether the model may follow without a flag.
_PROGRAMS: Final = (
    (("vllm", "serve"), VLLM),
    (("semblend-vllm", "serve"), VLLM),
    (("kvmend", "serve", "--engine", VLLM), VLLM),
    (("kvmend", "serve", "--engine", SGLANG), SGLANG),
    (("vllm.entrypoints.cli.main", "serve"), VLLM),
    (("vllm.entrypoints.openai.api_server",), VLLM),
    (("semblend-sglang",), SGLANG),
    (("semblend.integration.sglang.launch",), SGLANG),
    (("sglang", "serve"), SGLANG),
    (("sglang.launch_server",), SGLANG),
)
_MODEL_FLAG: Final = {VLLM: "--model", SGLANG: "--model-path"}


@dataclass(frozen=True, slots=True)
class ServeCommand:
    """``flags`` are the engine's own, without program and model."""

    engine: str
    model: str
    flags: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """To paste into a shell."""
        if self.engine == VLLM:
            return shlex.join(("vllm", "serve", self.model, *self.flags))
        return shlex.join(("kvmend", "serve", "--engine", SGLANG, self.model, *self.flags))


def read_command(engine: str | None, model: str | None, words: Sequence[str]) -> ServeCommand | None:
    """What the user named, by options of ours or as a whole command line. None if neither names a model."""
    rest = list(words)
    named = _take_program(rest)
    if engine is not None and named is not None and engine != named:
        raise ConfigurationError(f"--engine is {engine}, but the command line after -- starts {named}")
    chosen = engine or named
    found = take_value(rest, _MODEL_FLAG[chosen]) if chosen is not None else None
    if found is None and named is not None and rest and not rest[0].startswith("-"):
        found = rest.pop(0)
    if model is not None and found is not None and model != found:
        raise ConfigurationError(f"--model is {model}, but the command line after -- serves {found}")
    served = model or found
    if served is None:
        if words:
            raise ConfigurationError("the command line after -- names no model; add --model DIR before the --")
        return None
    return None if chosen is None else ServeCommand(chosen, served, tuple(rest))


def with_semblend(command: ServeCommand, options: Mapping[str, Any]) -> ServeCommand:
    """The same command with our flags. ``options`` are added to the connector options it has already."""
    if command.engine != VLLM:
        return command
    rest = list(command.flags)
    present = transfer_of(command)
    kept = present.get("kv_connector_extra_config") if is_ours(present) else None
    take_value(rest, TRANSFER_FLAG)
    take_value(rest, WORKER_FLAG)
    return replace(command, flags=(*rest, *serve_flags({**(kept if isinstance(kept, Mapping) else {}), **options})))


def transfer_of(command: ServeCommand) -> dict[str, Any]:
    """The KV transfer configuration on the command line; empty without one."""
    text = take_value(list(command.flags), TRANSFER_FLAG)
    if text is None:
        return {}
    try:
        found = json.loads(text)
    except ValueError as error:
        raise ConfigurationError(f"{TRANSFER_FLAG} is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise ConfigurationError(f"{TRANSFER_FLAG} is not a JSON object")
    return found


def is_ours(transfer: Mapping[str, Any]) -> bool:
    module, _, name = CONNECTOR.partition(":")
    return transfer.get("kv_connector") == name and transfer.get("kv_connector_module_path") == module


def _take_program(rest: list[str]) -> str | None:
    """Removes the program from the front; the engine it starts, or None if the words begin with a flag."""
    if not rest or rest[0].startswith("-"):
        return None
    words = [PurePath(rest[0]).name, *rest[1:]]
    skipped = 2 if words[0].startswith("python") and words[1:2] == ["-m"] else 0
    for program, engine in _PROGRAMS:
        if tuple(words[skipped : skipped + len(program)]) == program:
            del rest[: skipped + len(program)]
            return engine
    raise ConfigurationError(
        f"'{shlex.join(rest[:3])}' does not start a server this command knows; write `vllm serve MODEL ...`, "
        "`kvmend serve --engine sglang MODEL ...`, or only flags"
    )
