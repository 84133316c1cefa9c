"""What a study writes: files that appear whole or not at all, and finished cells by digest, so a run can be resumed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from semantic_kv.experiment.figures import Figures, figures_from_json
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


FOLDER: Final = ".cells"


class CellStore:
    """One file per cell under ``<output>/.cells``; ``fresh`` ignores existing files and overwrites them."""

    def __init__(self, output: Path, *, fresh: bool = False) -> None:
        self._folder = output / FOLDER
        self._fresh = fresh

    def load(self, digest: str) -> Figures | None:
        """None if the cell is missing or unreadable; it is then simulated."""
        path = self._path(digest)
        if self._fresh or not path.is_file():
            return None
        try:
            return figures_from_json(read_json(path))
        except ContractError:
            return None

    def keep(self, digest: str, figures: Figures) -> None:
        write_json(self._path(digest), figures.to_json(), compact=True)

    def _path(self, digest: str) -> Path:
        return self._folder / digest[:2] / f"{digest}.json"
