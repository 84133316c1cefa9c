"""Parsers of settings: text in, a value out, a ValueError that says what to write instead. For setting_fields.py."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import field
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

T = TypeVar("T")
LEVELS: Final = ("debug", "info", "warning", "error")
DEFAULT_PATHS: Final = (
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/models",
    "/v1/models/*",
    "/v1/embeddings",
    "/v1/responses",
    "/v1/messages",
    "/v1/rerank",
    "/v1/score",
    "/generate",
    "/tokenize",
    "/detokenize",
)


def setting(default: Any, environment: str, parse: Callable[[str], Any], metavar: str, about: str) -> Any:
    """A dataclass field that knows its variable, its parser and its description."""
    known = {"environment": environment, "parse": parse, "metavar": metavar, "about": about}
    return field(default=default, metadata=known)


def flag(text: str) -> bool:
    value = text.strip().lower()
    if value in {"1", "true", "yes", "on"}:
        return True
    if value in {"0", "false", "no", "off"}:
        return False
    raise ValueError("write true or false")


def whole(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        raise ValueError("write a whole number") from None
    if value < 0:
        raise ValueError("write a number of at least 0")
    return value


def positive(text: str) -> int:
    value = whole(text)
    if value < 1:
        raise ValueError("write a number of at least 1")
    return value


def port(text: str) -> int:
    value = whole(text)
    if value > 65_535:
        raise ValueError("a port is at most 65535")
    return value


def seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise ValueError("write a number") from None
    if not 0.0 <= value < math.inf:
        raise ValueError("write a finite number of at least 0")
    return value


def share(text: str) -> float:
    value = seconds(text)
    if value > 1.0:
        raise ValueError("write a number between 0 and 1")
    return value


def rate(text: str) -> float:
    value = seconds(text)
    if value == 0.0:
        raise ValueError("write a number above 0")
    return value


def origin(text: str) -> str:
    """A URL without query; a trailing slash and a trailing /v1 are forgiven, since people paste either."""
    value = text.strip().rstrip("/").removesuffix("/v1")
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise ValueError("write a URL such as http://localhost:8000")
    return value


def words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


def lower_name(text: str) -> str:
    return text.strip().lower().replace("-", "_")


def log_level(text: str) -> str:
    value = text.strip().lower()
    if value not in LEVELS:
        raise ValueError(f"write one of {', '.join(LEVELS)}")
    return value


def optional(parse: Callable[[str], T]) -> Callable[[str], T | None]:
    return lambda text: parse(text) if text.strip() else None
