"""Where a run took place: versions, platform, git revision. No host or user names."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

from sembench import __version__
from sembench.manifest import MANIFEST_VERSION
from semblend.contract import CONTRACT_VERSION

_PACKAGES: Final = ("numpy", "rapidfuzz", "numba", "tokenizers", "usearch")
_GIT_SECONDS: Final = 5


def describe_environment() -> dict[str, Any]:
    return {
        "contract_version": CONTRACT_VERSION,
        "manifest_version": MANIFEST_VERSION,
        "package_version": __version__,
        "git_revision": _git_revision(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "hardware": {"machine": platform.machine(), "cpus": os.cpu_count(), "accelerator": None},
        "packages": {name: _version(name) for name in _PACKAGES},
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _git_revision() -> str | None:
    """The revision of the checkout this package runs from, ``+dirty`` if changed; None when installed from a wheel.

    Asked only if git tracks this very file: a virtual environment inside another project is not that project.
    """
    here = Path(__file__)
    if shutil.which("git") is None or _git(here.parent, "ls-files", "--error-unmatch", here.name) is None:
        return None
    revision = _git(here.parent, "rev-parse", "--verify", "HEAD")
    if revision is None:
        return None
    dirty = _git(here.parent, "status", "--porcelain", "--untracked-files=no")
    return f"{revision}+dirty" if dirty else revision


def _git(directory: Path, *arguments: str) -> str | None:
    command = ["git", "-C", str(directory), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_GIT_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
