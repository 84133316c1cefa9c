"""Parsers of values: text or a JSON value in, a typed value out, or an error that says what to write.

A parser is called with text (a flag, an environment variable) and is itself an argparse ``type``. ``from_json`` takes a
value of a JSON, TOML or YAML document, where a quoted number is not a number.
"""

from __future__ import annotations

import argparse
import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Generic, TypeVar
from urllib.parse import urlsplit

T = TypeVar("T")
_TRUE: Final = frozenset({"1", "true", "yes", "on"})
_FALSE: Final = frozenset({"0", "false", "no", "off"})
_SCALES: Final = {"k": 1_000, "m": 1_000_000, "g": 1_000_000_000}
_SIZE_UNITS: Final = {unit: 1 << 10 * power for power, unit in enumerate(("", "KiB", "MiB", "GiB", "TiB"))}
_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)", re.ASCII)
_MAX_SHOWN: Final = 60


class InvalidValueError(argparse.ArgumentTypeError, ValueError):
    """A value that a parser refuses; ``expected`` is what to write instead."""

    def __init__(self, expected: str, value: object, *, is_text: bool) -> None:
        self.expected = expected
        super().__init__(f"expected {expected}, got {repr(value) if is_text else shown(value)}")


@dataclass(frozen=True, slots=True)
class Parser(Generic[T]):
    """``decode`` turns text into the JSON value it stands for, ``check`` turns a JSON value into the typed one.

    Both raise ``ValueError`` or ``TypeError`` for what they refuse; the message is made from ``expected``. ``metavar``
    stands for the value in the help of a flag.
    """

    expected: str
    decode: Callable[[str], Any]
    check: Callable[[Any], T]
    metavar: str = "TEXT"

    def __call__(self, text: str) -> T:
        try:
            return self.check(self.decode(text))
        except (ValueError, TypeError):
            raise InvalidValueError(self.expected, text, is_text=True) from None

    def from_json(self, value: object) -> T:
        try:
            return self.check(value)
        except (ValueError, TypeError):
            quotes = ", without quotes" if isinstance(value, str) and self._can_read(value) else ""
            raise InvalidValueError(self.expected + quotes, value, is_text=False) from None

    def _can_read(self, text: str) -> bool:
        try:
            self(text)
        except ValueError:
            return False
        return True


def shown(value: object) -> str:
    """A value as JSON, shortened; what JSON cannot hold as Python shows it."""
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):
        text = repr(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[: _MAX_SHOWN - 3]}..."


def whole(minimum: int | None = 0, maximum: int | None = None, what: str = "a whole number") -> Parser[int]:
    limits = f" between {minimum} and {maximum}" if maximum is not None else f" of at least {minimum}"

    def check(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise TypeError
        if (minimum is not None and value < minimum) or (maximum is not None and value > maximum):
            raise ValueError
        return value

    return Parser(what if minimum is None else what + limits, int, check, "N")


def size(minimum: int) -> Parser[int]:
    """Bytes: a whole number, or text with a binary unit; also in JSON, where a number without quotes is bytes."""
    of_bytes = whole(minimum)

    def check(value: Any) -> int:
        return of_bytes.check(_decode_size(value) if isinstance(value, str) else value)

    return Parser(f'a number of bytes of at least {minimum}, such as "8GiB"', _same, check, "SIZE")


def number(
    minimum: float = 0.0, maximum: float = math.inf, *, above: bool = False, metavar: str = "N"
) -> Parser[float]:
    """A finite number; with ``above``, ``minimum`` itself is refused."""
    low = f"above {minimum:g}" if above else f"of at least {minimum:g}"
    if minimum == -math.inf:
        expected = "a finite number"
    elif maximum == math.inf:
        expected = f"a finite number {low}"
    else:
        expected = (
            f"a number {low} and at most {maximum:g}" if above else f"a number between {minimum:g} and {maximum:g}"
        )

    def check(value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise TypeError
        if not minimum <= value <= maximum or not math.isfinite(value) or (above and value == minimum):
            raise ValueError
        return float(value)

    return Parser(expected, float, check, metavar)


def one_of(*choices: str) -> Parser[str]:
    def check(value: Any) -> str:
        if not isinstance(value, str) or value not in choices:
            raise ValueError
        return value

    listed = ", ".join(f'"{choice}"' for choice in choices)
    return Parser(f"one of {listed}", lambda text: text.strip().lower(), check, "NAME")


def optional(parser: Parser[T]) -> Parser[T | None]:
    """An empty text or ``null`` means no value."""

    def check(value: Any) -> T | None:
        return None if value is None else parser.check(value)

    return Parser(
        f"{parser.expected}, or nothing (null in JSON)",
        lambda text: parser.decode(text) if text.strip() else None,
        check,
        parser.metavar,
    )


def _check_flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError
    return value


def _decode_flag(text: str) -> bool:
    word = text.strip().lower()
    if word not in _TRUE | _FALSE:
        raise ValueError
    return word in _TRUE


def _check_text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value.strip()


def _check_filled(value: Any) -> str:
    if not (checked := _check_text(value)):
        raise ValueError
    return checked


def _check_path(value: Any) -> Path:
    if not isinstance(value, str) or not value.strip():
        raise ValueError
    return Path(value.strip())


def _check_words(value: Any) -> tuple[str, ...]:
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise TypeError
    return tuple(word for each in value if (word := _check_text(each)))


def _check_origin(value: Any) -> str:
    """A trailing slash and a trailing /v1 are removed, since people paste either."""
    url = _check_text(value).rstrip("/").removesuffix("/v1")
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise ValueError
    return url


def _decode_scaled(text: str) -> int:
    scale = _SCALES.get(text[-1:].lower(), 1)
    value = float(text[:-1] if scale > 1 else text) * scale
    if not math.isfinite(value) or value != int(value):
        raise ValueError
    return int(value)


def _decode_size(text: str) -> int:
    found = _SIZE.fullmatch(text.strip())
    if found is None or found[2] not in _SIZE_UNITS:
        raise ValueError
    return int(float(found[1]) * _SIZE_UNITS[found[2]]) if found[2] else int(found[1])


def header(text: str) -> tuple[str, str]:
    """``Name: value``. The value may be a secret: an error shows only what comes before the colon."""
    name, colon, value = text.partition(":")
    if not colon or not name.strip():
        raise InvalidValueError("a header of the form 'Name: value'", name, is_text=True)
    return name.strip(), value.strip()


def _same(text: str) -> str:
    return text


flag: Final = Parser("true or false", _decode_flag, _check_flag, "BOOL")
count: Final = whole(0)
positive: Final = whole(1)
port: Final = whole(0, 65_535, "a port")
amount: Final = number(0.0)
seconds: Final = number(0.0, metavar="S")
rate: Final = number(0.0, above=True)
fraction: Final = number(0.0, 1.0, metavar="FRACTION")
positive_fraction: Final = number(0.0, 1.0, above=True, metavar="FRACTION")
text: Final = Parser("text", _same, _check_text)
filled_text: Final = Parser("text that is not empty", _same, _check_filled)
name: Final = Parser("a name", lambda written: written.strip().lower().replace("-", "_"), _check_text, "NAME")
path: Final = Parser("the path of a file or folder", _same, _check_path, "FILE")
words: Final = Parser("a list, separated by commas", lambda written: written.split(","), _check_words, "LIST")
origin: Final = Parser("a URL such as http://localhost:8000", _same, _check_origin, "URL")
log_level: Final = one_of("debug", "info", "warning", "error")
capacity: Final = Parser("a whole number of at least 1, such as 5000, 5k or 2M", _decode_scaled, positive.check, "N")
