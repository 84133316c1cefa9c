"""Reading fields of foreign rows: what is wrong is named by dataset and row, not found out three modules later."""

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
    """A list of texts; one text alone counts as a list of one, null as none."""
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
    """Lone surrogates, which JSON can carry and UTF-8 cannot, become the replacement character."""
    return text.encode("utf-8", "replace").decode() if any("\ud800" <= c <= "\udfff" for c in text) else text
