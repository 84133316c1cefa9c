"""The error tree.

SemBlendError
├── ConfigurationError      a setting, flag or file the user can correct
├── MissingDependencyError  an optional package is not installed; the message names the extra
├── ContractError           a record that crossed a border does not follow the contract
└── DonorError              a donor cannot be registered (duplicate, empty, larger than the budget)
"""

from __future__ import annotations

from typing import Final

DISTRIBUTION: Final = "kvmend"  # what `pip install` gets; the import packages keep their names


def install_command(extra: str = "") -> str:
    """The command that installs this distribution, with an extra where one is named."""
    return f"pip install '{DISTRIBUTION}[{extra}]'" if extra else f"pip install {DISTRIBUTION}"


class SemBlendError(Exception):
    """Base of every error this library raises on purpose."""


class ConfigurationError(SemBlendError):
    pass


class MissingDependencyError(SemBlendError):
    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(f"{purpose} needs the package '{package}'. Install it with: {install_command(extra)}")
        self.package = package
        self.extra = extra


class ContractError(SemBlendError):
    pass


class DonorError(SemBlendError):
    pass
