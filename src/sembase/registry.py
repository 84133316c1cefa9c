"""Lazy imports by name: one target, or a registry of targets that third parties extend through entry points."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterator
from importlib.metadata import entry_points
from types import ModuleType
from typing import Any, Generic, TypeVar, cast

from sembase.errors import ConfigurationError

T = TypeVar("T")


def load_module(name: str) -> ModuleType:
    """The module, imported now."""
    return importlib.import_module(name)


def load_target(target: str) -> Any:
    """The attribute that ``"package.module:attribute"`` names; its module is imported now, on first use."""
    module, _, attribute = target.partition(":")
    return getattr(load_module(module), attribute)


class Registry(Generic[T]):
    """Names to objects. A target is ``"package.module:attribute"`` and is imported only when it is requested."""

    def __init__(self, kind: str, group: str | None = None) -> None:
        self.kind = kind
        self._group = group
        self._targets: dict[str, str] = {}
        self._loaded: dict[str, T] = {}
        self._scanned = group is None

    def register(self, name: str, target: str | T) -> None:
        if name in self._targets or name in self._loaded:
            raise ConfigurationError(f"{self.kind} '{name}' is registered twice")
        if isinstance(target, str):
            self._targets[name] = target
        else:
            self._loaded[name] = target

    def names(self) -> tuple[str, ...]:
        self._scan_entry_points()
        return tuple(sorted({*self._targets, *self._loaded}))

    def get(self, name: str) -> T:
        if name in self._loaded:
            return self._loaded[name]
        self._scan_entry_points()
        target = self._targets.get(name)
        if target is None:
            near = difflib.get_close_matches(name, self.names(), n=1)
            hint = f" Did you mean '{near[0]}'?" if near else ""
            raise ConfigurationError(f"unknown {self.kind} '{name}'; known: {', '.join(self.names())}.{hint}")
        self._loaded[name] = cast(T, load_target(target))
        return self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def _scan_entry_points(self) -> None:
        if self._scanned:
            return
        self._scanned = True
        assert self._group is not None
        for entry in entry_points(group=self._group):
            self._targets.setdefault(entry.name, entry.value)
