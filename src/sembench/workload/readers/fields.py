"""Reads fields of third-party rows. Errors name the dataset and the row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sembase.errors import ConfigurationError


def text_of(row: Mapping[str, Any], key: str, where: str, default: str | None = None) -> str:
    value = row.get(key, default)
    if not isinstance(value, str):
        raise ConfigurationError(f"{where}: '{key}' must be text, not {type(value).__name__}")
    return well_formed(value)


def texts_of(row: Mapping[str, Any], key: str, where: str) -> tuple[str, ...]:
    """A list of texts. A single text counts as a list of one, null as an empty list."""
    value = row.get(key)
    if value is None:
        return ()
    if isinstance(value, str | int | float):
        return (well_formed(str(value)),)
    if not isinstance(value, list):
        raise ConfigurationError(f"{where}: '{key}' must be a list of texts")
    return tuple(well_formed(str(entry)) for entry in value)


def rows_of(row: Mapping[str, Any], key: str, where: str) -> list[Mapping[str, Any]]:
    value = row.get(key)
    if not isinstance(value, list) or not all(isinstance(entry, dict) for entry in value):
        raise ConfigurationError(f"{where}: '{key}' must be a list of objects")
    return value


def well_formed(text: str) -> str:
    """Replaces lone surrogates, which JSON can express and UTF-8 cannot."""
    return text.encode("utf-8", "replace").decode() if any("\ud800" <= c <= "\udfff" for c in text) else text
