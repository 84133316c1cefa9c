"""Writing a file so that a reader sees the old one or the new one, never half of it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO


@contextmanager
def replace_atomically(path: Path) -> Iterator[IO[bytes]]:
    """A stream whose bytes appear under ``path`` only if the block ends without an error."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise _about(path, error) from None
    try:
        with os.fdopen(handle, "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(temporary, 0o644)  # mkstemp makes it private; a result is meant to be read by others
        os.replace(temporary, path)
    except BaseException as error:
        Path(temporary).unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename in (None, temporary):
            raise _about(path, error) from None
        raise


def _about(path: Path, error: OSError) -> OSError:
    """The same error about the file the user named, not about the temporary one."""
    return OSError(error.errno, error.strerror, str(path)) if error.errno is not None else error
