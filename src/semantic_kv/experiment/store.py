"""Finished cells on disk by digest: a stopped run goes on where it was, a repeated one costs nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from semantic_kv.experiment.figures import Figures, figures_from_json
from semantic_kv.experiment.files import read_json, write_json
from sembase.errors import ContractError

FOLDER: Final = ".cells"


class CellStore:
    """One file per cell under ``<output>/.cells``; ``fresh`` ignores what is there and writes it anew."""

    def __init__(self, output: Path, *, fresh: bool = False) -> None:
        self._folder = output / FOLDER
        self._fresh = fresh

    def load(self, digest: str) -> Figures | None:
        """None where the cell is not there or not readable: then it is simulated."""
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
