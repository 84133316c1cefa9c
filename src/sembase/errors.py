"""The error tree.

SemBlendError
├── ConfigurationError      a setting, flag or file the user can correct
├── MissingDependencyError  an optional package is not installed; the message names the extra
├── ContractError           a record that crossed a border does not follow the contract
└── DonorError              a donor cannot be registered (duplicate, empty, larger than the budget)
"""

from __future__ import annotations


class SemBlendError(Exception):
    """Base of every error this library raises on purpose."""


class ConfigurationError(SemBlendError):
    pass


class MissingDependencyError(SemBlendError):
    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(f"{purpose} needs the package '{package}'. Install it with: pip install 'semblend[{extra}]'")
        self.package = package
        self.extra = extra


class ContractError(SemBlendError):
    pass


class DonorError(SemBlendError):
    pass
