"""The error tree.

SemBlendError
├── ConfigurationError      a setting, flag or file the user can correct
├── MissingDependencyError  an optional package is not installed; the message names the extra
├── ContractError           a record that crossed a border does not follow the contract
└── DonorError              a donor cannot be registered (duplicate, empty, larger than the budget)
"""

from __future__ import annotations

import json
import shlex
from importlib.metadata import PackageNotFoundError, distribution
from typing import Final
from urllib.parse import unquote, urlsplit

DISTRIBUTION: Final = "kvmend"  # what `pip install` gets; the import packages keep their names


def install_command(extra: str = "") -> str:
    """The command that installs this distribution, with an extra where one is named."""
    return f"pip install '{DISTRIBUTION}[{extra}]'" if extra else f"pip install {DISTRIBUTION}"


def install_elsewhere_command() -> str:
    """The command for an environment that does not have this distribution yet: from the clone, if this is one."""
    clone = _clone()
    return f"pip install -e {shlex.quote(clone)}" if clone else install_command()


def _clone() -> str | None:
    try:
        recorded = json.loads(distribution(DISTRIBUTION).read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, ValueError):
        return None
    is_editable = recorded.get("dir_info", {}).get("editable", False)
    return unquote(urlsplit(recorded["url"]).path) if is_editable else None


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
