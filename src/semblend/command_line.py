"""What our commands have in common: exit codes, and errors turned into one line that says what to do."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum

from semblend.errors import MissingDependencyError, SemBlendError
from semblend.streams import write_err


class ExitCode(IntEnum):
    OK = 0
    GATE_FAILED = 1
    USAGE = 2
    ENVIRONMENT = 3
    INTERRUPTED = 130


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
