"""Compile hot loops with numba if it is installed; otherwise run the same functions as plain Python.

Decorated functions use the subset both understand, so there is one implementation to trust. Machine code is kept in the
user's cache folder, one folder per version of numba: versions that share one overwrite each other's index.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeVar, cast

try:
    import numba
    from numba.misc.appdirs import user_cache_dir

    HAS_COMPILER = True
except ImportError:  # the base install
    HAS_COMPILER = False

F = TypeVar("F", bound=Callable[..., Any])
# Top-level package to the folders that keep the machine code of its kernels, as far as they were imported.
_FOLDERS: Final[defaultdict[str, set[Path]]] = defaultdict(set)


def kernel(function: F) -> F:
    """A hot loop called from Python: compiled without the GIL and cached on disk if a cache folder is writable."""
    if not HAS_COMPILER or numba.config.DISABLE_JIT:
        return function
    compiled, folder = compile_cached(function, nogil=True)
    if folder is not None:
        package = function.__module__.partition(".")[0]
        _FOLDERS[package].add(folder)
        _drop_older(folder, _newest_source(package))
    return compiled


def compile_cached(function: F, **flags: bool) -> tuple[F, Path | None]:
    """The function under numba's ``njit``, and the folder that keeps its machine code; None if none is writable."""
    named = numba.config.CACHE_DIR  # NUMBA_CACHE_DIR, if the operator set it
    numba.config.CACHE_DIR = named or str(_cache_folder())
    try:
        compiled = numba.njit(cache=True, **flags)(function)
    except RuntimeError:  # neither the home nor the installation is writable: compile in every process
        return cast(F, numba.njit(**flags)(function)), None
    finally:
        numba.config.CACHE_DIR = named
    return cast(F, compiled), Path(compiled.stats.cache_path)


def kernel_part(function: F) -> F:
    """A function that only kernels call. Never cached on its own: a kernel compiled against a cached part cannot
    inline it and would stay slower, depending on which process compiled first."""
    if not HAS_COMPILER:
        return function
    return cast(F, numba.njit(nogil=True)(function))


def has_cached_code(package: str) -> bool:
    """Whether an earlier process compiled kernels of ``package``, as far as it is imported. True without a compiler."""
    return not HAS_COMPILER or any(next(folder.glob("*.nbi"), None) for folder in _FOLDERS[package])


def _cache_folder() -> Path:
    return Path(user_cache_dir("kvmend", appauthor=False)) / f"numba-{numba.__version__}-{sys.implementation.cache_tag}"


@cache
def _drop_older(folder: Path, newest: float) -> None:
    """Remove cached machine code that is older than ``newest``, the last change of any kernel source of the package.

    Numba notices a changed file, but not that a kernel in an unchanged file calls one that changed: after an edit it
    would keep running the old callee. Runs once per folder and process.
    """
    for index in folder.glob("*.nbi"):
        with suppress(OSError):  # removed by another process, or a read-only folder that is up to date
            if index.stat().st_mtime < newest:
                index.unlink()


@cache
def _newest_source(package: str) -> float:
    """When a file with kernels was last changed; 0 for code outside a package, which has no other files."""
    folders = [Path(folder) for folder in getattr(sys.modules.get(package), "__path__", ())]
    kernels = [file for folder in folders for file in folder.rglob("*.py") if b"@kernel" in file.read_bytes()]
    return max((file.stat().st_mtime for file in kernels), default=0.0)
