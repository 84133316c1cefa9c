"""The help of ``kvmend`` and its areas as Markdown, for ``docs/reference/commands.md``."""

from __future__ import annotations

import argparse
import os
from unittest import mock

from kvmend import front, serve
from semantic_kv.cli.main import parser as simulator
from sembench.cli.main import parser as bench
from semblend.cli.main import parser as library

COLUMNS = "100"


def command_help() -> str:
    """One section per area, wrapped alike on every terminal. Settings of the gateway have pages of their own."""
    with mock.patch.dict(os.environ, {"COLUMNS": COLUMNS}):
        commands = _commands(library(front.PROGRAM))
        roots = {
            "serve": serve.parser(f"{front.PROGRAM} serve"),
            "bench": bench(f"{front.PROGRAM} bench"),
            "simulate": simulator(f"{front.PROGRAM} simulate"),
        }
        shown = {**commands, **roots}
        sections = [_section(front.PROGRAM, front.parser())]
        sections += [
            _section(f"{front.PROGRAM} {each.name}", shown[each.name]) for each in front.AREAS if each.name in shown
        ]
    return "\n".join(sections)


def _commands(root: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    (found,) = [action for action in root._actions if isinstance(action, argparse._SubParsersAction)]
    return dict(found.choices)


def _section(title: str, command: argparse.ArgumentParser) -> str:
    return f"## {title}\n\n```text\n{command.format_help()}```\n"
