"""Compile hot loops with numba where it is installed; run the same code as plain Python where it is not.

The functions decorated here are written in the subset both understand, so there is one implementation to trust.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar, cast

try:
    import numba

    HAS_COMPILER = True
except ImportError:  # the base install
    HAS_COMPILER = False

F = TypeVar("F", bound=Callable[..., Any])


def kernel(function: F) -> F:
    """A hot loop called from Python: compiled without the GIL and, where a folder is writable, cached on disk."""
    if not HAS_COMPILER:
        return function
    try:
        return cast(F, numba.njit(cache=True, nogil=True)(function))
    except RuntimeError:  # neither the installation nor the home is writable: compile in every process
        return cast(F, numba.njit(nogil=True)(function))


def kernel_part(function: F) -> F:
    """A function that only kernels call. Never cached by itself: a kernel compiled against a part that was loaded from
    the cache cannot inline it, and would be slower for ever, depending on which process compiled what first."""
    if not HAS_COMPILER:
        return function
    return cast(F, numba.njit(nogil=True)(function))


def _drop_stale_caches(package: Path) -> None:
    """Remove cached machine code older than any module with kernels.

    The cache notices a changed file, but not that a kernel of an unchanged file calls one that changed: after an edit
    it would go on running the old callee.
    """
    kernels = [source for source in package.rglob("*.py") if b"@kernel" in source.read_bytes()]
    newest = max((source.stat().st_mtime for source in kernels), default=0.0)
    for index in package.rglob("__pycache__/*.nbi"):
        with suppress(OSError):  # another process was faster, or the installation is read-only and up to date
            if index.stat().st_mtime < newest:
                index.unlink()


if HAS_COMPILER:
    _drop_stale_caches(Path(__file__).parent)
