"""What our commands have in common: exit codes, errors as one line that says what to do, a module for each command."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from enum import IntEnum
from typing import Any

from semblend.errors import MissingDependencyError, SemBlendError
from semblend.streams import write_err


class ExitCode(IntEnum):
    OK = 0
    GATE_FAILED = 1
    USAGE = 2
    ENVIRONMENT = 3
    INTERRUPTED = 130


def add_commands(root: argparse.ArgumentParser, modules: Iterable[Any], codes: str) -> None:
    """A command per module: its NAME, SUMMARY, ``add_arguments``, ``execute``, and EXAMPLES where it has some."""
    commands = root.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for module in modules:
        examples = getattr(module, "EXAMPLES", None)
        command = commands.add_parser(
            module.NAME,
            help=module.SUMMARY,
            description=module.SUMMARY,
            epilog=codes if examples is None else f"examples:\n{examples}\n\n{codes}",
            formatter_class=argparse.HelpFormatter if examples is None else argparse.RawDescriptionHelpFormatter,
        )
        module.add_arguments(command)
        command.set_defaults(execute=module.execute)


def exit_code_of(program: str, command: Callable[[], int], interrupted: str) -> int:
    """Runs ``command``; ``interrupted`` says how to go on after Ctrl-C."""
    try:
        return int(command())
    except MissingDependencyError as error:
        return _complain(program, str(error), ExitCode.ENVIRONMENT)
    except SemBlendError as error:
        return _complain(program, str(error), ExitCode.USAGE)
    except OSError as error:
        return _complain(program, str(error), ExitCode.ENVIRONMENT)
    except KeyboardInterrupt:
        return _complain(program, f"interrupted; {interrupted}", ExitCode.INTERRUPTED)


def _complain(program: str, said: str, code: ExitCode) -> int:
    write_err(f"{program}: {' '.join(said.split())}\n")
    return int(code)
