"""The state of an interrupted pass: saved beside the page, read again only for the same traces and options.

Pickled, because the state is nested arrays and counters; reading admits no classes but ours, numpy's arrays and
collections, so that a file from elsewhere cannot run code.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any, Final

from sembase.errors import ContractError
from sembase.files import replace_atomically
from semestimate.analysis import Analysis

_FORMAT: Final = "semestimate.checkpoint.v2"
_OURS: Final = ("semestimate.", "sembase.trace.", "semblend.contract.", "semblend.plan.gates")
_OTHERS: Final = {
    ("collections", "OrderedDict"),
    ("collections", "Counter"),
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "scalar"),
    ("numpy._core.numeric", "_frombuffer"),
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy.core.multiarray", "scalar"),
    ("numpy.core.numeric", "_frombuffer"),
}


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _OTHERS or (f"{module}.".startswith(_OURS) and "." not in name):
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"{module}.{name} is not part of a checkpoint")


def save_checkpoint(path: Path, identity: str, analysis: Analysis) -> None:
    with replace_atomically(path) as stream:
        pickle.dump((_FORMAT, identity, analysis), stream, pickle.HIGHEST_PROTOCOL)


def read_checkpoint(path: Path, identity: str) -> Analysis | None:
    """None if there is none, or it belongs to other traces or options."""
    if not path.is_file():
        return None
    try:
        with path.open("rb") as stream:
            found = _Reader(stream).load()
    except (pickle.UnpicklingError, EOFError, AttributeError, ImportError, ValueError, TypeError) as error:
        raise ContractError(f"{path}: not a checkpoint of this release ({error}); delete it to start again") from None
    if not isinstance(found, tuple) or found[:2] != (_FORMAT, identity):
        return None
    analysis = found[2]
    return analysis if isinstance(analysis, Analysis) else None
