"""Wishes of a single request: ``{"semblend": {"reuse": false, "capture": true, "share": 0.2}}`` in a free field.

vLLM passes ``kv_transfer_params`` through, SGLang ``sampling_params.custom_params``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

KEY: Final = "semblend"


@dataclass(frozen=True, slots=True)
class Hints:
    """What a request may say about itself, under the key ``semblend`` of what its engine passes through.

    ``share`` of its loaded tokens is computed after all, instead of what the deployment or its calibration chose.
    """

    reuse: bool = True
    capture: bool | None = None
    share: float | None = None


def read_hints(params: Mapping[str, Any] | None) -> Hints:
    """Hints are wishes: what is not understood is ignored, it never fails a request."""
    own = (params or {}).get(KEY)
    if not isinstance(own, Mapping):
        return Hints()
    reuse, capture = own.get("reuse"), own.get("capture")
    return Hints(reuse is not False, capture if isinstance(capture, bool) else None, _share(own.get("share")))


def _share(value: Any) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and 0.0 <= value <= 1.0 else None
