"""Compile hot loops with numba if it is installed; otherwise run the same functions as plain Python.

Decorated functions use the subset both understand, so there is one implementation to trust.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

try:
    import numba

    HAS_COMPILER = True
except ImportError:  # the base install
    HAS_COMPILER = False

F = TypeVar("F", bound=Callable[..., Any])


def kernel(function: F) -> F:
    """A hot loop called from Python: compiled without the GIL and cached on disk if a cache folder is writable."""
    if not HAS_COMPILER:
        return function
    _drop_stale_caches_of(function)
    try:
        return cast(F, numba.njit(cache=True, nogil=True)(function))
    except RuntimeError:  # neither the installation nor the home is writable: compile in every process
        return cast(F, numba.njit(nogil=True)(function))


def kernel_part(function: F) -> F:
    """A function that only kernels call. Never cached on its own: a kernel compiled against a cached part cannot
    inline it and would stay slower, depending on which process compiled first."""
    if not HAS_COMPILER:
        return function
    return cast(F, numba.njit(nogil=True)(function))


@cache
def _drop_stale_caches(package: Path) -> None:
    """Remove cached machine code that is older than any kernel source of the package.

    Numba notices a changed file, but not that a kernel in an unchanged file calls one that changed: after an edit it
    would keep running the old callee. Runs once per top-level package and process.
    """
    kernels = [source for source in package.rglob("*.py") if b"@kernel" in source.read_bytes()]
    newest = max((source.stat().st_mtime for source in kernels), default=0.0)
    for index in package.rglob("__pycache__/*.nbi"):
        with suppress(OSError):  # removed by another process, or a read-only installation that is up to date
            if index.stat().st_mtime < newest:
                index.unlink()


def _drop_stale_caches_of(function: Callable[..., Any]) -> None:
    """The same for the package that defines ``function``; code outside a package has no cache folder of ours."""
    package = sys.modules.get(function.__module__.partition(".")[0])
    for folder in getattr(package, "__path__", ()):
        _drop_stale_caches(Path(folder))
