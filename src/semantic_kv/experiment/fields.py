"""Strict reading of a mapping from YAML: every key known, every value of its kind, or one line that says where."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

from sembase import values
from sembase.errors import ConfigurationError
from sembase.values import InvalidValueError, Parser, shown

T = TypeVar("T")


class Fields:
    """A mapping that is read key by key; ``finish`` refuses keys that were not read."""

    def __init__(self, value: object, where: str) -> None:
        if not isinstance(value, Mapping):
            raise ConfigurationError(f"{where}: expected keys and values, got {shown(value)}")
        self._values: Mapping[Any, Any] = value
        self._read: list[str] = []
        self.where = where

    def has(self, key: str) -> bool:
        self._read.append(key)
        return key in self._values

    def take(self, key: str, read: Callable[[object, str], T], default: T | None = None) -> T:
        if not self.has(key):
            if default is None:
                near = difflib.get_close_matches(key, [str(given) for given in self._values], n=1)
                hint = f"; is '{near[0]}' a misspelling of it?" if near else ""
                raise ConfigurationError(f"{self.where}: '{key}' is missing{hint}")
            return default
        return read(self._values[key], f"{self.where}, {key}")

    def take_or_none(self, key: str, read: Callable[[object, str], T]) -> T | None:
        if not self.has(key) or self._values[key] is None:
            return None
        return read(self._values[key], f"{self.where}, {key}")

    def finish(self) -> None:
        for key in self._values:
            if key not in self._read:
                near = difflib.get_close_matches(str(key), self._read, n=1)
                hint = f"did you mean '{near[0]}'?" if near else f"known: {', '.join(sorted(set(self._read)))}"
                raise ConfigurationError(f"{self.where}: unknown key '{key}'; {hint}")


def value_of(parser: Parser[T]) -> Callable[[object, str], T]:
    def read(value: object, where: str) -> T:
        try:
            return parser.from_json(value)
        except InvalidValueError as error:
            raise ConfigurationError(f"{where}: {error}") from None

    return read


def one_of(known: Sequence[str]) -> Callable[[object, str], str]:
    def read(value: object, where: str) -> str:
        name = text(value, where)
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f" Did you mean '{near[0]}'?" if near else ""
            raise ConfigurationError(f"{where}: unknown '{name}'; known: {', '.join(known)}.{hint}")
        return name

    return read


def many(read: Callable[[object, str], T], max_entries: int = 1_000) -> Callable[[object, str], tuple[T, ...]]:
    """A list of at least one, without repetition."""

    def read_all(value: object, where: str) -> tuple[T, ...]:
        if not isinstance(value, list) or not value:
            raise ConfigurationError(f"{where}: expected a list with at least one entry, got {shown(value)}")
        if len(value) > max_entries:
            raise ConfigurationError(f"{where}: {len(value)} entries are more than {max_entries}")
        entries = tuple(read(entry, f"{where} entry {place}") for place, entry in enumerate(value, 1))
        if len(set(entries)) < len(entries):
            raise ConfigurationError(f"{where}: an entry occurs twice")
        return entries

    return read_all


def scalar(value: object, where: str) -> str | int | float | bool:
    if isinstance(value, str | int | bool) or (isinstance(value, float) and math.isfinite(value)):
        return value
    raise ConfigurationError(f"{where}: expected text, a number or true/false, got {shown(value)}")


text: Final = value_of(values.filled_text)
whole: Final = value_of(values.whole(None))
positive: Final = value_of(values.positive)
number: Final = value_of(values.number(-math.inf))
amount: Final = value_of(values.amount)
fraction: Final = value_of(values.positive_fraction)
flag: Final = value_of(values.flag)
