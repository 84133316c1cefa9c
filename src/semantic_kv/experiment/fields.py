"""Strict reading of a mapping from YAML: every key known, every value of its kind, or one line that says where."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from sembase.errors import ConfigurationError

T = TypeVar("T")


class Fields:
    """A mapping that is read key by key; ``finish`` complains about what nobody asked for."""

    def __init__(self, value: object, where: str) -> None:
        if not isinstance(value, Mapping):
            raise ConfigurationError(f"{where}: expected keys and values, found {_kind(value)}")
        self._values: Mapping[Any, Any] = value
        self._asked: list[str] = []
        self.where = where

    def has(self, key: str) -> bool:
        self._asked.append(key)
        return key in self._values

    def take(self, key: str, read: Callable[[object, str], T], default: T | None = None) -> T:
        if not self.has(key):
            if default is None:
                near = difflib.get_close_matches(key, [str(given) for given in self._values], n=1)
                hint = f"; did you mean it by '{near[0]}'?" if near else ""
                raise ConfigurationError(f"{self.where}: '{key}' is missing{hint}")
            return default
        return read(self._values[key], f"{self.where}, {key}")

    def take_or_none(self, key: str, read: Callable[[object, str], T]) -> T | None:
        if not self.has(key) or self._values[key] is None:
            return None
        return read(self._values[key], f"{self.where}, {key}")

    def finish(self) -> None:
        for key in self._values:
            if key not in self._asked:
                near = difflib.get_close_matches(str(key), self._asked, n=1)
                hint = f"did you mean '{near[0]}'?" if near else f"known: {', '.join(sorted(set(self._asked)))}"
                raise ConfigurationError(f"{self.where}: unknown key '{key}'; {hint}")


def text(value: object, where: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ConfigurationError(f"{where}: expected a text, found {_kind(value)}")
    return value.strip()


def whole(value: object, where: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ConfigurationError(f"{where}: expected a whole number, found {_kind(value)}")
    return value


def positive(value: object, where: str) -> int:
    given = whole(value, where)
    if given < 1:
        raise ConfigurationError(f"{where}: {given} is not at least 1")
    return given


def number(value: object, where: str) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        raise ConfigurationError(f"{where}: expected a number, found {_kind(value)}")
    return float(value)


def amount(value: object, where: str) -> float:
    given = number(value, where)
    if given < 0:
        raise ConfigurationError(f"{where}: {given:g} is not at least 0")
    return given


def share(value: object, where: str) -> float:
    given = amount(value, where)
    if not 0.0 < given <= 1.0:
        raise ConfigurationError(f"{where}: {given:g} is not more than 0 and at most 1")
    return given


def one_of(known: Sequence[str]) -> Callable[[object, str], str]:
    def read(value: object, where: str) -> str:
        name = text(value, where)
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f" Did you mean '{near[0]}'?" if near else ""
            raise ConfigurationError(f"{where}: unknown '{name}'; known: {', '.join(known)}.{hint}")
        return name

    return read


def many(read: Callable[[object, str], T], most: int = 1_000) -> Callable[[object, str], tuple[T, ...]]:
    """A list of at least one, without repetition."""

    def read_all(value: object, where: str) -> tuple[T, ...]:
        if not isinstance(value, list) or not value:
            raise ConfigurationError(f"{where}: expected a list with at least one entry, found {_kind(value)}")
        if len(value) > most:
            raise ConfigurationError(f"{where}: {len(value)} entries are more than {most}")
        entries = tuple(read(entry, f"{where} entry {place}") for place, entry in enumerate(value, 1))
        if len(set(entries)) < len(entries):
            raise ConfigurationError(f"{where}: an entry stands there twice")
        return entries

    return read_all


def scalar(value: object, where: str) -> str | int | float | bool:
    if isinstance(value, str | int | bool) or (isinstance(value, float) and math.isfinite(value)):
        return value
    raise ConfigurationError(f"{where}: expected a text, number or true/false, found {_kind(value)}")


def flag(value: object, where: str) -> bool:
    if not isinstance(value, bool):
        raise ConfigurationError(f"{where}: expected true or false, found {_kind(value)}")
    return value


def _kind(value: object) -> str:
    if value is None:
        return "nothing"
    shown = repr(value)
    return shown if len(shown) <= 40 else f"{shown[:37]}..."
