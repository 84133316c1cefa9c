"""Flags generated from the settings: every field is a flag whose help names the variable and the default."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn, TypeVar

from sembase.errors import MissingDependencyError
from sembase.settings import flag_of, rows_of
from semgate.settings import CONFIG_VARIABLE, ServerSettings, load

S = TypeVar("S", bound=ServerSettings)


@contextmanager
def extra_needed(extra: str, purpose: str) -> Iterator[None]:
    """For imports that a base installation does not have: a missing package becomes an error that names the extra."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise MissingDependencyError(error.name or extra, extra, purpose) from None


def add_settings(command: argparse.ArgumentParser, kind: type[ServerSettings]) -> None:
    command.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help=f"TOML file with a table [{kind.table}]; flags and environment override it ({CONFIG_VARIABLE})",
    )
    group = command.add_argument_group("settings (flags override the environment, which overrides the file)")
    for row in rows_of(kind):
        about = row.description.replace("%", "%%")
        described = f"{about} ({row.variable}; default: {row.default_text()})"
        group.add_argument(row.flag, metavar=row.metavar, help=described)
    for name, instead in kind.removed.items():
        group.add_argument(flag_of(name), type=_refusal(instead), default=argparse.SUPPRESS, help=argparse.SUPPRESS)


def _refusal(instead: str) -> Callable[[str], NoReturn]:
    """The argparse type of a removed flag."""

    def refuse(_: str) -> NoReturn:
        raise argparse.ArgumentTypeError(f"was removed; {instead}")

    return refuse


def settings_from(options: argparse.Namespace, kind: type[S]) -> S:
    return load(kind, given_flags(options, kind), config=options.config)


def given_flags(options: argparse.Namespace, kind: type[ServerSettings]) -> dict[str, str | None]:
    return {row.name: getattr(options, row.name) for row in rows_of(kind)}
