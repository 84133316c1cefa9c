"""Wishes of a single request: ``{"semblend": {"reuse": false, "capture": true}}`` in the engine's own free field.

vLLM passes ``kv_transfer_params`` through, SGLang ``sampling_params.custom_params``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

KEY: Final = "semblend"


@dataclass(frozen=True, slots=True)
class Hints:
    """What a request may say about itself, under the key ``semblend`` of what its engine passes through."""

    reuse: bool = True
    capture: bool | None = None


def read_hints(params: Mapping[str, Any] | None) -> Hints:
    """Hints are wishes: what is not understood is ignored, it never fails a request."""
    own = (params or {}).get(KEY)
    if not isinstance(own, Mapping):
        return Hints()
    reuse, capture = own.get("reuse"), own.get("capture")
    return Hints(reuse is not False, capture if isinstance(capture, bool) else None)
