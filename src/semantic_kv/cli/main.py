"""The entry point: runs a command and turns errors into a one-line message and an exit code."""

from __future__ import annotations

import argparse
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Final

from semantic_kv.cli import calibrate, collect, mrc, replay, run, run_all, serve
from sembase.command_line import CommandParser, add_commands, run_program
from semblend import __version__


@contextmanager
def interrupted_by_sigterm() -> Iterator[None]:
    """Within it the first SIGTERM raises ``KeyboardInterrupt``; later ones are ignored during clean-up.

    Only the main thread may set handlers; in other threads this does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _interrupt(number: int, frame: FrameType | None) -> None:
    signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


COMMAND_MODULES: Final = (run, run_all, replay, collect, calibrate, mrc, serve)
PROGRAM: Final = "semantic-kv"
_CODES: Final = (
    "exit codes: 0 ok, 2 wrong usage or input, 3 environment (missing package, disk, port), 130 interrupted "
    "(Ctrl-C, SIGTERM)"
)
_INTERRUPTED: Final = "finished cells are kept; run the same command again to continue"


def parser(program: str = PROGRAM) -> argparse.ArgumentParser:
    root = CommandParser(
        prog=program,
        description="Simulate prefix and KV caches under memory pressure: which admission and eviction policy to use, "
        "how much memory helps, and how far a policy is from the optimum. TTFT is modelled, never measured.",
        epilog=_CODES,
    )
    root.add_argument("--version", action="version", version=f"{program} {__version__}")
    add_commands(root, COMMAND_MODULES, _CODES)
    return root


def main(arguments: Sequence[str] | None = None, program: str = PROGRAM) -> int:
    with interrupted_by_sigterm():
        return run_program(program, lambda: parser(program), arguments, _INTERRUPTED)
