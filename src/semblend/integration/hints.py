"""Hints of a single request: ``{"semblend": {"reuse": false, "capture": true, "recompute_fraction": 0.2}}``.

vLLM passes them in ``kv_transfer_params``, SGLang in ``sampling_params.custom_params``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

KEY: Final = "semblend"


@dataclass(frozen=True, slots=True)
class Hints:
    """What a request may ask for, under the key ``semblend`` of the parameters that its engine passes through.

    ``recompute_fraction`` of its reused tokens, instead of what the deployment or its measured answers say.
    """

    reuse: bool = True
    capture: bool | None = None
    recompute_fraction: float | None = None


def read_hints(params: Mapping[str, Any] | None) -> Hints:
    """A hint that is not understood is ignored; it never fails a request."""
    own = (params or {}).get(KEY)
    if not isinstance(own, Mapping):
        return Hints()
    reuse, capture = own.get("reuse"), own.get("capture")
    fraction = _fraction(own.get("recompute_fraction"))
    return Hints(reuse is not False, capture if isinstance(capture, bool) else None, fraction)


def _fraction(value: Any) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and 0.0 <= value <= 1.0 else None
