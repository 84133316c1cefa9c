"""The help of every ``semblend`` command as Markdown, for ``docs/reference/semblend.md``."""

from __future__ import annotations

import argparse
import os
from unittest import mock

from semblend.cli.main import parser

COLUMNS = "100"


def command_help() -> str:
    """One section per command, wrapped alike on every terminal."""
    with mock.patch.dict(os.environ, {"COLUMNS": COLUMNS}):
        root = parser()
        sections = [_section(root.prog, root)]
        sections += [_section(f"{root.prog} {name}", each) for name, each in sorted(_commands(root).items())]
    return "\n".join(sections)


def _commands(root: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    (found,) = [action for action in root._actions if isinstance(action, argparse._SubParsersAction)]
    return dict(found.choices)


def _section(title: str, command: argparse.ArgumentParser) -> str:
    return f"## {title}\n\n```text\n{command.format_help()}```\n"
