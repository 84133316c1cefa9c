"""What must be equal before one request may reuse another's KV. An unknown component means decline."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, fields
from enum import Enum
from operator import attrgetter
from typing import Final, Literal


class Unknown(Enum):
    """A component whose value is not known. It never equals anything, so it can never permit reuse."""

    UNKNOWN = "unknown"


UNKNOWN: Final = Unknown.UNKNOWN
Component = str | int | None | Literal[Unknown.UNKNOWN]


@dataclass(frozen=True, slots=True)
class Namespace:
    """The identity under which donors are registered and searched.

    ``None`` is a value of its own ("this deployment has no LoRA", "this tenant sent no salt"), never a wildcard.
    ``UNKNOWN`` is the absence of knowledge and makes every look-up decline.
    """

    tenant: Component
    model: Component
    revision: Component = None
    tokenizer: Component = None
    dtype: Component = None
    kv_layout: Component = None
    block_size: Component = None
    rope: Component = None
    lora: Component = None
    tp_layout: Component = None

    def __post_init__(self) -> None:
        for name, value in zip(_NAMES, _components(self), strict=True):
            if type(value) not in _TYPES:  # True == 1 == 1.0 would make one tenant of three
                raise TypeError(f"namespace component '{name}' must be a str, an int, None or UNKNOWN, not {value!r}")

    @property
    def is_known(self) -> bool:
        return not self.unknown_components()

    def unknown_components(self) -> tuple[str, ...]:
        values = _components(self)
        if UNKNOWN not in values:
            return ()
        return tuple(name for name, value in zip(_NAMES, values, strict=True) if value is UNKNOWN)

    def digest(self) -> str:
        """A stable name for logs and events. Comparisons use the namespace itself, never this digest."""
        parts = [[name, _tagged(value)] for name, value in zip(_NAMES, _components(self), strict=True)]
        return hashlib.sha256(json.dumps(parts, separators=(",", ":")).encode()).hexdigest()[:32]


_NAMES: Final = tuple(f.name for f in fields(Namespace))
_components: Final = attrgetter(*_NAMES)
_TYPES: Final = frozenset({str, int, type(None), Unknown})


def _tagged(value: Component) -> list[str | int | None]:
    """Keep ``None``, ``"None"``, ``1``, ``"1"`` and unknown apart."""
    if value is UNKNOWN:
        return ["unknown", None]
    return [type(value).__name__, value]
