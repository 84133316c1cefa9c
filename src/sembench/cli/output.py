"""Checks ``--output`` before the run starts, not hours later when the result is to be written; a shared argument."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from sembase.command_line import existing_file
from sembase.errors import ConfigurationError


def add_floor_argument(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--floor-result",
        type=existing_file,
        metavar="FILE",
        help="a --cold-only result of the same manifest from a server with another chunk size (vLLM: "
        "--max-num-batched-tokens): answers that two cold runs do not agree on are the floor",
    )


def require_writable(output: Path) -> None:
    """A wrong path is a usage error; a missing write permission is an error of the environment."""
    if output.is_dir():
        raise ConfigurationError(f"--output {output}: is a directory; name a file")
    existing = next(parent for parent in output.absolute().parents if parent.exists() or parent.is_symlink())
    if not existing.is_dir():
        raise ConfigurationError(f"--output {output}: {existing} is not a directory")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise PermissionError(f"--output {output}: {existing} cannot be written to")


def require_other_file(output: Path, given: Path, option: str) -> None:
    """Rejects an output that is the same file as an input, through links and other spellings of the path too."""
    if output.exists() and output.samefile(given):
        raise ConfigurationError(f"--output {output}: is the file given as {option}, which would be overwritten")
