"""Writing a file so that a reader sees the old one or the new one, never half of it."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

from semblend.errors import ContractError


def write_bytes(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
        os.chmod(temporary, 0o644)  # mkstemp makes it private; results are meant to be read by others
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def write_text(path: Path, content: str) -> None:
    write_bytes(path, content.encode())


def write_json(path: Path, content: object, *, compact: bool = False) -> None:
    style = {"separators": (",", ":")} if compact else {"indent": 1}
    write_text(path, json.dumps(content, allow_nan=False, **style) + "\n")


def read_json(path: Path) -> object:
    try:
        return json.loads(path.read_bytes())
    except (ValueError, UnicodeDecodeError) as error:
        raise ContractError(f"{path} is not JSON: {error}") from None
