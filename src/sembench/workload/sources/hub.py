"""The only importer of the ``datasets`` library; loaded on demand, because it is heavy and optional."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

from datasets import load_dataset

from sembase.errors import ConfigurationError


def load_rows(repository: str, subset: str | None) -> Iterable[Mapping[str, Any]]:
    split = "test" if subset is not None else "train"
    try:
        rows = load_dataset(repository, subset, split=split)
    except (OSError, ValueError, RuntimeError) as error:
        name = f"{repository}/{subset}" if subset else repository
        if "scripts are no longer supported" in str(error):
            raise ConfigurationError(
                f"{name} on the hub is a loading script, which the library datasets no longer runs. Download its files "
                f"once (`hf download {repository} --repo-type dataset`), unpack them and pass --data-dir DIR"
            ) from None
        raise ConfigurationError(
            f"could not load {name} from the hub ({type(error).__name__}: {error}). A reachable hub is needed; "
            "without one, download the files elsewhere and pass --data-dir DIR"
        ) from None
    return cast("Iterable[Mapping[str, Any]]", rows)
