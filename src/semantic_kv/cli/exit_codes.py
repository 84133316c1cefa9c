"""What a command's exit code says."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    OK = 0
    USAGE = 2
    ENVIRONMENT = 3
    INTERRUPTED = 130
