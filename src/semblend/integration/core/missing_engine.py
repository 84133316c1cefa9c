"""The error of a process without its engine: no extra of ours installs one, so it says what to install."""

from __future__ import annotations

from sembase.errors import MissingDependencyError, SemBlendError


class EngineMissingError(MissingDependencyError):
    """The engine cannot be imported here."""

    def __init__(self, engine: str, package: str, seen: str, how: str) -> None:
        SemBlendError.__init__(self, f"{engine} cannot be imported ({seen}); {how}")
        self.package, self.extra = package, ""
