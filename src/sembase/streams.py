"""Writing to stdout and stderr when the reader may be gone: `| head` must not make a finished command fail."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TextIO


def write_out(text: str) -> None:
    """For a command's final output. A closed pipe is ignored; a full disk is an error."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        _silence(sys.stdout)


def write_err(text: str) -> None:
    """For progress and notes: a failure to write them never stops the work."""
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except (OSError, ValueError):
        _silence(sys.stderr)


def _silence(stream: TextIO) -> None:
    """Points the stream at /dev/null; otherwise the interpreter would fail on the closed pipe when it exits."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(nowhere, stream.fileno())
        finally:
            os.close(nowhere)
