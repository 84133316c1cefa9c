"""``kvmend AREA ...``: the front door. Each area is a command of one of the packages, imported when it is called."""

from __future__ import annotations

import argparse
import difflib
import sys
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from sembase.command_line import HELP_COLUMNS, CommandParser, ExitCode
from sembase.errors import DISTRIBUTION
from sembase.registry import load_target
from sembase.streams import write_err, write_out

PROGRAM: Final = DISTRIBUTION
_DESCRIPTION: Final = (
    "Reuse the KV cache of content that repeats anywhere in a prompt: estimate it from your traffic, serve it with "
    "vLLM or SGLang, measure it, route for it."
)
GATEWAY: Final = "semgate.cli.main:main"
LIBRARY: Final = "semblend.cli.main:main"
BENCH: Final = "sembench.cli.main:main"
SIMULATOR: Final = "semantic_kv.cli.main:main"
_RENAMED: Final = {"names": {"router": "route", "picker": "pick"}}


@dataclass(frozen=True, slots=True)
class Area:
    """``words`` come before the user's own; a main that has several commands is one area or one area per command."""

    name: str
    summary: str
    main: str
    words: tuple[str, ...] = ()
    program: str = PROGRAM
    settings: Mapping[str, Any] = field(default_factory=dict)


AREAS: Final = (
    Area("estimate", "what reuse would save on your traffic, from a request log", LIBRARY, ("estimate",)),
    Area("doctor", "check engine, model and flags before a server starts", LIBRARY, ("doctor",)),
    Area("serve", "start vLLM, SGLang or TensorRT-LLM with KV reuse", "kvmend.serve:main", program=f"{PROGRAM} serve"),
    Area("bench", "build workloads, measure a server, judge and report", BENCH, program=f"{PROGRAM} bench"),
    Area("simulate", "replay traces against cache sizes and policies", SIMULATOR, program=f"{PROGRAM} simulate"),
    Area("proxy", "record traffic without its text", GATEWAY, ("proxy",), settings=_RENAMED),
    Area("route", "send each request to the replica that holds its KV", GATEWAY, ("route",), settings=_RENAMED),
    Area("pick", "the same choice for Envoy and Kubernetes gateways", GATEWAY, ("pick",), settings=_RENAMED),
    Area("explain", "why a request was placed or reused as it was", "kvmend.explain:main"),
    Area("guard", "show and reset the checks of blended answers", LIBRARY, ("guard",)),
)


def parser() -> argparse.ArgumentParser:
    """Only for the help and for errors of usage: what follows the area is parsed by the area."""
    width = max(len(area.name) for area in AREAS)
    listed = "\n".join(f"  {area.name:<{width}}  {area.summary}" for area in AREAS)
    return CommandParser(
        prog=PROGRAM,
        usage=f"{PROGRAM} [-h] [--version] AREA ...",
        description=textwrap.fill(_DESCRIPTION, HELP_COLUMNS),
        epilog=f"areas:\n{listed}\n\n`{PROGRAM} AREA --help` shows the options of an area.\n"
        "exit codes: 0 ok, 1 a check failed, 2 wrong usage or input, 3 environment, 130 interrupted",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    first = words[0] if words else ""
    if first in {"-h", "--help", "help"}:
        write_out(parser().format_help())
        return int(ExitCode.OK)
    if first == "--version":
        write_out(f"{PROGRAM} {load_target('semblend._version:__version__')}\n")
        return int(ExitCode.OK)
    if not first:
        write_err(parser().format_help())
        return int(ExitCode.USAGE)
    known = {area.name: area for area in AREAS}
    if first not in known:
        near = difflib.get_close_matches(first, known, n=1)
        parser().error(f"unknown area '{first}'." + (f" Did you mean '{near[0]}'?" if near else ""))
    return enter(known[first], words[1:])


def enter(area: Area, words: Sequence[str]) -> int:
    return int(load_target(area.main)([*area.words, *words], program=area.program, **area.settings))
