"""What our commands share: exit codes, errors in one line that says what to do, one module for each command."""

from __future__ import annotations

import argparse
import os
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import IntEnum
from pathlib import Path
from typing import Any, Final, NoReturn

from sembase.errors import ConfigurationError, MissingDependencyError, SemBlendError
from sembase.streams import write_err

HELP_COLUMNS: Final = 80


class ExitCode(IntEnum):
    OK = 0
    GATE_FAILED = 1
    USAGE = 2
    ENVIRONMENT = 3
    INTERRUPTED = 130


class CommandParser(argparse.ArgumentParser):
    """Reports wrong usage in one line that points to --help, instead of a page of usage."""

    def error(self, message: str) -> NoReturn:
        self.exit(int(ExitCode.USAGE), f"{self.prog}: error: {' '.join(message.split())} (see {self.prog} --help)\n")


def take_value(words: list[str], flag: str) -> str | None:
    """Removes every ``--flag value`` and ``--flag=value``; the last value, which is what engines take, or None.

    Engines accept underscores for dashes.
    """
    found, rest, following = None, [], iter(words)
    for word in following:
        name, equals, value = word.partition("=")
        if not name.startswith("--") or name.replace("_", "-") != flag:
            rest.append(word)
            continue
        found = value if equals else next(following, None)
        if found is None:
            raise ConfigurationError(f"{flag} needs a value")
    words[:] = rest
    return found


def existing_file(text: str) -> Path:
    """The argparse type of a flag that names a file to read."""
    path = Path(text)
    try:
        if path.is_dir():
            raise argparse.ArgumentTypeError(f"'{text}' is a folder; name a file")
        if not path.is_file():
            raise argparse.ArgumentTypeError(f"there is no file '{text}'")
        with path.open("rb"):
            return path
    except OSError as error:
        raise argparse.ArgumentTypeError(f"'{text}': {(error.strerror or str(error)).lower()}") from None


def existing_folder(text: str) -> Path:
    """The argparse type of a flag that names a folder to read."""
    path = Path(text)
    try:
        if not path.is_dir():
            raise argparse.ArgumentTypeError(f"there is no folder '{text}'")
        with os.scandir(path):
            return path
    except OSError as error:
        raise argparse.ArgumentTypeError(f"'{text}': {(error.strerror or str(error)).lower()}") from None


def add_commands(
    root: argparse.ArgumentParser, modules: Iterable[Any], codes: str, names: Mapping[str, str] | None = None
) -> None:
    """A command per module: its NAME, SUMMARY, ``add_arguments``, ``execute``, and EXAMPLES where it has some.

    ``names`` replaces a module's NAME where the program calls the command otherwise.
    """
    commands = root.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for module in modules:
        examples = getattr(module, "EXAMPLES", None)
        command = commands.add_parser(
            (names or {}).get(module.NAME, module.NAME),
            help=module.SUMMARY,
            description=module.SUMMARY,
            epilog=codes if examples is None else f"examples:\n{examples}\n\n{codes}",
            formatter_class=argparse.HelpFormatter if examples is None else argparse.RawDescriptionHelpFormatter,
        )
        module.add_arguments(command)
        command.set_defaults(execute=module.execute)


def launcher_parser(program: str, description: str, needs: str, example: str) -> argparse.ArgumentParser:
    """The parser of a command that starts an engine; its help ends with a command line to copy."""
    return CommandParser(
        prog=program,
        allow_abbrev=False,
        description=textwrap.fill(description, HELP_COLUMNS),
        epilog=f"{textwrap.fill(needs, HELP_COLUMNS)}\n\nexample:\n  {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def run_program(
    program: str, parser: Callable[[], argparse.ArgumentParser], arguments: Sequence[str] | None, interrupted: str
) -> int:
    """Runs the command that ``arguments`` name. An error about a file names the flag that gave it."""
    given: dict[str, Any] = {}

    def execute() -> int:
        options = parser().parse_args(arguments)
        given.update(vars(options))
        return int(options.execute(options))

    return exit_code_of(program, execute, interrupted, given)


def exit_code_of(
    program: str, command: Callable[[], int], interrupted: str, given: Mapping[str, Any] | None = None
) -> int:
    """Runs ``command``. ``interrupted`` says how to continue after Ctrl-C; ``given`` are the flags by name."""
    try:
        return int(command())
    except MissingDependencyError as error:
        return _fail(program, str(error), ExitCode.ENVIRONMENT)
    except SemBlendError as error:
        return _fail(program, str(error), ExitCode.USAGE)
    except OSError as error:
        return _fail(program, _message_of(error, given or {}), ExitCode.ENVIRONMENT)
    except KeyboardInterrupt:
        # CPython remembers an interrupt that left an `exec` of text (a dataclass, a named tuple being made); after
        # `python -m` it ends the process with SIGINT, though the interrupt was handled. The next `exec` forgets it.
        exec("")
        return _fail(program, f"interrupted; {interrupted}", ExitCode.INTERRUPTED)


def _message_of(error: OSError, given: Mapping[str, Any]) -> str:
    """Which file, by which flag, and what is wrong with it, without error numbers."""
    if error.strerror is None:
        return str(error)
    what = error.strerror[:1].lower() + error.strerror[1:]
    if not isinstance(error.filename, str | bytes):
        return what
    path = Path(error.filename if isinstance(error.filename, str) else error.filename.decode(errors="replace"))
    flag = _flag_of(path, given)
    return f"{path}: {what}; give another path" if flag is None else f"{flag}: {path}: {what}; give another path"


def _flag_of(path: Path, given: Mapping[str, Any]) -> str | None:
    """The flag whose value is the path or the nearest folder above it; otherwise one whose value is below the path."""
    named = [
        (Path(value), f"--{name.replace('_', '-')}")
        for name, value in given.items()
        if isinstance(value, Path) or (isinstance(value, str) and value == str(path))
    ]
    above = [each for each in named if path == each[0] or each[0] in path.parents]
    if above:
        return max(above, key=lambda each: len(each[0].parts))[1]
    return next((flag for each, flag in named if path in each.parents), None)


def _fail(program: str, message: str, code: ExitCode) -> int:
    write_err(f"{program}: {' '.join(message.split())}\n")
    return int(code)
