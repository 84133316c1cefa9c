"""Records that are read from files and messages: msgspec checks every field, and refuses one it does not know.

A field's type is its whole contract: ``Count`` and ``Amount`` are neither negative nor infinite.
"""

from __future__ import annotations

import json
from typing import Annotated, Any, Final, TypeVar

import msgspec
from msgspec import Meta

T = TypeVar("T")
_LARGEST: Final = 1e300
Count = Annotated[int, Meta(ge=0)]
Amount = Annotated[float, Meta(ge=0.0, le=_LARGEST)]
Finite = Annotated[float, Meta(ge=-_LARGEST, le=_LARGEST)]
Share = Annotated[float, Meta(ge=0.0, le=1.0)]
Name = Annotated[str, Meta(min_length=1)]


class Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An immutable record. A subclass with more than five fields takes them by keyword (``kw_only``)."""


def read_json(text: str | bytes) -> Any:
    """JSON without NaN and infinity; ``ValueError`` says what is wrong."""
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def record_of(kind: type[T], value: object) -> T:
    """``value``, as JSON or msgpack gave it, as a record; ``ValueError`` names the field that is wrong."""
    try:
        return msgspec.convert(value, kind, builtin_types=(bytes,))
    except (msgspec.ValidationError, RecursionError) as error:
        raise ValueError(str(error)) from None


def as_plain(record: Any) -> Any:
    """A record as dicts, lists and plain values; bytes stay bytes."""
    return msgspec.to_builtins(record, builtin_types=(bytes,))


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number")
