"""The key of the admin surface, read from a file by whoever serves it and whoever asks it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from sembase.errors import ConfigurationError

LEAST_KEY_CHARACTERS: Final = 16


def read_admin_key(path: Path | None) -> str:
    """The key in a file; it is never a flag, which every user of the machine could read."""
    if path is None:
        raise ConfigurationError("the admin surface needs a key: write one to a file and give --admin-api-key-file")
    try:
        key = path.read_text(encoding="ascii").strip()
    except OSError as error:
        said = (error.strerror or str(error)).lower()
        raise ConfigurationError(f"--admin-api-key-file {path}: the admin key cannot be read: {said}") from None
    except UnicodeDecodeError:
        raise ConfigurationError(f"--admin-api-key-file {path}: the admin key is not plain ASCII text") from None
    if len(key) < LEAST_KEY_CHARACTERS:
        raise ConfigurationError(
            f"--admin-api-key-file {path}: an admin key has at least {LEAST_KEY_CHARACTERS} characters"
        )
    return key
