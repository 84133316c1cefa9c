"""Writing to stdout and stderr when the reader may be gone: `| head` must not turn finished work into a failure."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TextIO


def write_out(text: str) -> None:
    """For what a command has to say after its work. A closed pipe is the reader's choice; a full disk is an error."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        _silence(sys.stdout)


def write_err(text: str) -> None:
    """For progress and notes: nothing that goes wrong here may stop the work."""
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except (OSError, ValueError):
        _silence(sys.stderr)


def _silence(stream: TextIO) -> None:
    """Points the stream at nothing, or the interpreter would meet the closed pipe again when it ends."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(nowhere, stream.fileno())
        finally:
            os.close(nowhere)
