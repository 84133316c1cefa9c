"""One small registry with lazy targets: built-ins and third parties (entry points) come in by the same door."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterator
from importlib.metadata import entry_points
from typing import Generic, TypeVar, cast

from sembase.errors import ConfigurationError

T = TypeVar("T")


class Registry(Generic[T]):
    """Names to things. A target is ``"package.module:attribute"`` and is imported only when asked for."""

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
        module, _, attribute = target.partition(":")
        self._loaded[name] = cast(T, getattr(importlib.import_module(module), attribute))
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
