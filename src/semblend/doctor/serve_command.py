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
# Ours among them, for vLLM: these words put the connector in by themselves.
_LAUNCHERS: Final = (("kvmend", "serve", "--engine", VLLM), ("semblend-vllm", "serve"))
_MODEL_FLAG: Final = {VLLM: "--model", SGLANG: "--model-path"}
OPTIONS_FLAG: Final = "--semblend-options"
OFF_FLAG: Final = "--semblend-off"
CHECK_FLAG: Final = "--semblend-check"


@dataclass(frozen=True, slots=True)
class ServeCommand:
    """``flags`` are the engine's own, without program and model. ``launched``: vLLM with ours, by ``kvmend serve``."""

    engine: str
    model: str
    flags: tuple[str, ...] = ()
    launched: bool = False

    @property
    def text(self) -> str:
        """To paste into a shell. ``kvmend serve`` also starts builds of vLLM in which ``vllm serve`` fails."""
        if self.engine == SGLANG:
            return shlex.join(("kvmend", "serve", "--engine", SGLANG, self.model, *self.flags))
        if not self.launched:
            return shlex.join(("vllm", "serve", self.model, *self.flags))
        options = connector_options(self)
        ours = (OPTIONS_FLAG, json.dumps(options)) if options else ()
        return shlex.join(("kvmend", "serve", "--engine", VLLM, self.model, *_other_flags(self), *ours))


def read_command(engine: str | None, model: str | None, words: Sequence[str]) -> ServeCommand | None:
    """What the user named, by options of ours or as a whole command line. None if neither names a model."""
    rest = list(words)
    named, is_launched = _take_program(rest)
    if named is None and engine == VLLM:
        is_launched = True  # flags alone are those of `kvmend serve`
    options = _take_launcher_flags(rest) if is_launched else None
    if engine is not None and named is not None and engine != named:
        raise ConfigurationError(f"--engine is {engine}, but the command line after -- starts {named}")
    chosen = engine or named
    found = take_value(rest, _MODEL_FLAG[chosen]) if chosen is not None else None
    if found is None and named is not None and rest and not rest[0].startswith("-"):
        found = rest.pop(0)
    if model is not None and found is not None and model != found:
        raise ConfigurationError(f"--model is {model}, but the command line after -- serves {found}")
    served = model or found
    if served is None or chosen is None:
        return None
    command = ServeCommand(chosen, served, tuple(rest))
    return command if options is None else with_semblend(command, options)


def with_semblend(command: ServeCommand, options: Mapping[str, Any]) -> ServeCommand:
    """The same command with our flags. ``options`` are added to the connector options it has already."""
    if command.engine != VLLM:
        return command
    ours = serve_flags({**connector_options(command), **options})
    return replace(command, flags=(*_other_flags(command), *ours), launched=True)


def with_flags(command: ServeCommand, flags: Sequence[str]) -> ServeCommand:
    """The same command with flags of the engine added."""
    return replace(command, flags=(*command.flags, *flags))


def names(command: ServeCommand, flag: str) -> bool:
    """Whether the command has the flag, or the one that turns it off."""
    spelt = {word.partition("=")[0].replace("_", "-") for word in command.flags}
    return not spelt.isdisjoint((flag, flag.replace("--", "--no-", 1)))


def transfer_of(command: ServeCommand) -> dict[str, Any]:
    """The KV transfer configuration on the command line; empty without one."""
    text = take_value(list(command.flags), TRANSFER_FLAG)
    return {} if text is None else _object(TRANSFER_FLAG, text)


def connector_options(command: ServeCommand) -> Mapping[str, Any]:
    """Those of our connector; empty if the command names another one or none."""
    present = transfer_of(command)
    found = present.get("kv_connector_extra_config") if is_ours(present) else None
    return found if isinstance(found, Mapping) else {}


def read_options(text: str) -> dict[str, Any]:
    """The value of ``--semblend-options``."""
    return _object(OPTIONS_FLAG, text)


def is_ours(transfer: Mapping[str, Any]) -> bool:
    module, _, name = CONNECTOR.partition(":")
    return transfer.get("kv_connector") == name and transfer.get("kv_connector_module_path") == module


def _object(flag: str, text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise ConfigurationError(f"{flag} is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise ConfigurationError(f"{flag} is not a JSON object")
    return found


def _other_flags(command: ServeCommand) -> list[str]:
    """Without those that put a connector in."""
    rest = list(command.flags)
    take_value(rest, TRANSFER_FLAG)
    take_value(rest, WORKER_FLAG)
    return rest


def _take_launcher_flags(rest: list[str]) -> dict[str, Any] | None:
    """Removes the flags of ``kvmend serve``; the connector options, or None if it starts the stock server."""
    options = take_value(rest, OPTIONS_FLAG)
    is_off = OFF_FLAG in rest
    rest[:] = [word for word in rest if word not in (OFF_FLAG, CHECK_FLAG)]
    return None if is_off else read_options(options or "{}")


def _take_program(rest: list[str]) -> tuple[str | None, bool]:
    """Removes the program from the front; the engine it starts, None if the words begin with a flag; is it ours."""
    if not rest or rest[0].startswith("-"):
        return None, False
    words = [PurePath(rest[0]).name, *rest[1:]]
    skipped = 2 if words[0].startswith("python") and words[1:2] == ["-m"] else 0
    for program, engine in _PROGRAMS:
        if tuple(words[skipped : skipped + len(program)]) == program:
            del rest[: skipped + len(program)]
            return engine, program in _LAUNCHERS
    raise ConfigurationError(
        f"'{shlex.join(rest[:3])}' does not start a server this command knows; write `vllm serve MODEL ...`, "
        "`kvmend serve --engine vllm MODEL ...`, `kvmend serve --engine sglang MODEL ...`, or only flags"
    )
