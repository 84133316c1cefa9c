"""Flags made from the settings: every field is a flag, its help names the variable and the default."""

from __future__ import annotations

import argparse
from dataclasses import fields
from pathlib import Path
from typing import TypeVar

from semgate.settings import CONFIG_VARIABLE, ServerSettings, load, shown_default, variable_of

S = TypeVar("S", bound=ServerSettings)


def add_settings(command: argparse.ArgumentParser, kind: type[ServerSettings]) -> None:
    command.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help=f"TOML file with a table [{kind.table}]; flags and environment win over it ({CONFIG_VARIABLE})",
    )
    group = command.add_argument_group("settings (flags win over the environment, that over the file)")
    for each in fields(kind):
        about = str(each.metadata["about"]).replace("%", "%%")
        group.add_argument(
            f"--{each.name.replace('_', '-')}",
            metavar=each.metadata["metavar"],
            help=f"{about} ({variable_of(each)}; default: {shown_default(each)})",
        )


def settings_from(options: argparse.Namespace, kind: type[S]) -> S:
    return load(kind, given_flags(options, kind), config=options.config)


def given_flags(options: argparse.Namespace, kind: type[ServerSettings]) -> dict[str, str | None]:
    return {each.name: getattr(options, each.name) for each in fields(kind)}
