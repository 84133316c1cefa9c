"""Writing a trace file whole or not at all; what the system refuses is said about the file the user named."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from sembase.errors import ConfigurationError
from sembase.files import replace_atomically


@contextmanager
def write_atomically(path: Path) -> Iterator[IO[bytes]]:
    """A stream whose bytes appear under ``path`` only if the block ends without an error."""
    try:
        with replace_atomically(path) as stream:
            yield stream
    except OSError as error:
        raise ConfigurationError(
            f"{path}: cannot be written (--output): {(error.strerror or str(error)).lower()}"
        ) from None
