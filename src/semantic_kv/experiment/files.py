"""What a study writes and reads: bytes, text and JSON, each file whole or not at all."""

from __future__ import annotations

import json
from pathlib import Path

from sembase.errors import ContractError
from sembase.files import replace_atomically


def write_bytes(path: Path, content: bytes) -> None:
    with replace_atomically(path) as stream:
        stream.write(content)


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
