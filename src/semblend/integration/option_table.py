"""Options as one table: keys, readers, defaults, descriptions. JSON values go in; typed values or a refusal come out.

Each adapter declares its own table; parsing, refusals and the generated reference page are the same for all.
"""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from sembase.errors import ConfigurationError
from semblend.plan.gates import Gates

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")


@dataclass(frozen=True, slots=True)
class Option:
    """One documented key: ``read`` checks a JSON value and says in a ``ValueError`` what to write instead."""

    name: str
    read: Callable[[Any], Any]
    default: Any
    description: str
    is_gate: bool = False


class OptionsOf(Generic[T]):
    """Rows of the table of one adapter's options: a dataclass whose every field but ``gates`` is a key, and whose gates
    have keys of their own. Defaults are those of ``defaults``."""

    def __init__(self, defaults: T, gates: Gates) -> None:
        self._defaults = defaults
        self._gates = gates

    def option(self, name: str, read: Callable[[Any], Any], description: str) -> Option:
        return Option(name, read, getattr(self._defaults, name), description)

    def gate(self, name: str, read: Callable[[Any], Any], description: str) -> Option:
        return Option(name, read, getattr(self._gates, name), description, is_gate=True)

    def covers(self, table: Sequence[Option]) -> bool:
        """Whether every field has its row and every row its field."""
        named = {option.name for option in table if not option.is_gate}
        return named == {field.name for field in fields(self._defaults) if field.name != "gates"}

    def parsed(self, table: Sequence[Option], given: Mapping[str, Any], where: str) -> T:
        """The options of a deployment: what is given over the defaults. ``where`` begins every refusal."""
        values = parse_table(table, given, where)
        chosen = {option.name: values.pop(option.name) for option in table if option.is_gate and option.name in values}
        return replace(self._defaults, **values, gates=replace(self._gates, **chosen))


def json_object(text: str, where: str, example: str) -> dict[str, Any]:
    """The object in ``text``, none of its keys read; an empty text is an empty object."""
    try:
        given = json.loads(text) if text.strip() else {}
    except (json.JSONDecodeError, RecursionError) as error:
        raise ConfigurationError(f"{where}: not JSON ({error}); write an object such as {example}") from None
    if not isinstance(given, dict):
        raise ConfigurationError(f"{where}: write a JSON object, not {type(given).__name__}")
    return given


def whole(minimum: int) -> Callable[[Any], int]:
    def read(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise ValueError("write a whole number, without quotes, decimal point or exponent")
        if value < minimum:
            raise ValueError(f"it is at least {minimum}")
        return value

    return read


def share(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError("write a number between 0 and 1, without quotes")
    if not 0.0 <= value <= 1.0:
        raise ValueError("it lies between 0 and 1")
    return float(value)


def optional_share(value: Any) -> float | None:
    if value is None:
        return None
    try:
        return share(value)
    except ValueError as error:
        raise ValueError(f"{error}, or null for the usual share") from None


def ceiling(value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 < value < math.inf:
        raise ValueError("write a number above 0, without quotes, or null for no ceiling")
    return float(value)


def flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("write true or false, without quotes")
    return value


def text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("write a string")
    return value.strip()


def one_of(*choices: str) -> Callable[[Any], str]:
    def read(value: Any) -> str:
        if value not in choices:
            raise ValueError("write one of " + ", ".join(f'"{choice}"' for choice in choices))
        return str(value)

    return read


def path(value: Any) -> Path | None:
    if value is None:
        return None
    if not isinstance(value, str) or not value.strip():
        raise ValueError("write the path of a file as a string, or null for none")
    return Path(value)


def parse_table(table: Sequence[Option], given: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Checked values by key, of the keys that were given. ``where`` begins every refusal."""
    by_name = {option.name: option for option in table}
    values: dict[str, Any] = {}
    for name, value in given.items():
        option = by_name.get(name)
        if option is None:
            near = difflib.get_close_matches(str(name), list(by_name), n=1, cutoff=0.0)
            raise ConfigurationError(f"{where}: '{name}' is not an option of SemBlend; the nearest is '{near[0]}'")
        try:
            values[name] = option.read(value)
        except ValueError as error:
            raise ConfigurationError(f"{where}: {name}={shown(value)}: {error}") from None
    return values


def shown(value: Any) -> str:
    try:
        return json.dumps(value)
    except (TypeError, ValueError):
        return repr(value)


def markdown_table(table: Sequence[Option]) -> str:
    """The documentation of every key, as Markdown."""
    rows = ["| Key | Default | Description |", "|---|---|---|"]
    rows += [f"| `{option.name}` | `{shown(option.default)}` | {option.description} |" for option in table]
    return "\n".join(rows) + "\n"
