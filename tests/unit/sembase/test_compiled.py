from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("numba", reason="the extra 'fast' is not installed")


def run(script: str, **environment: str) -> str:
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, env=os.environ | environment
    )
    assert result.returncode == 0, result.stderr[-2000:]
    return result.stdout


def test_warming_up_leaves_nothing_to_compile() -> None:
    """After it, neither registering nor planning nor forgetting compiles another signature."""
    script = """
import numpy as np
from numba.core import event
from semblend import Namespace, Planner, Settings
Planner.warm_up()
ns = Namespace(tenant="a", model="m")
with event.install_recorder("numba:compile") as recorder:
    planner = Planner(settings=Settings(embedder="none"), budget_bytes=1 << 22)
    tokens = np.random.default_rng(0).integers(0, 9, 5000).astype(np.uint32)
    for i in range(30):
        planner.register(str(i), np.append(tokens[:1000], np.uint32(i)), ns)
    planner.plan(tokens, ns)
    planner.plan(tokens, ns, exact_prefix_tokens=700)
    for i in range(30):
        planner.forget(str(i))
print(len(recorder.buffer))
"""
    assert run(script).strip() == "0"


def test_kernels_work_where_nothing_is_writable() -> None:
    script = """
import numba.core.caching as caching
for implementation in (caching.CompileResultCacheImpl, caching.CacheImpl):
    implementation._locator_classes = []
from sembase.compiled import kernel
assert kernel(lambda x: x + 1)(2) == 3
print("compiled")
"""
    assert run(script).strip() == "compiled"


KERNEL = "@kernel\ndef double(x):\n    return 2 * x\n"
CALL = """
import json, numba
from sembase.compiled import has_cached_code
from package.module import double
was_cached = has_cached_code("package")
double(1)
hits, folder = sum(double.stats.cache_hits.values()), double.stats.cache_path
print(json.dumps([was_cached, hits, folder, numba.__version__, numba.config.CACHE_DIR]))
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    source = tmp_path / "package" / "module.py"
    source.parent.mkdir()
    (source.parent / "__init__.py").touch()
    source.write_text(f"from sembase.compiled import kernel\n\n\n{KERNEL}")
    return source


def call(package: Path, **environment: str) -> tuple[bool, int, Path, str, str]:
    """Whether machine code was there, how much of it was used, where it is, numba's version, and its own folder."""
    was_cached, hits, folder, version, numbas_own = json.loads(
        run(CALL, PYTHONPATH=str(package.parents[1]), **{"NUMBA_CACHE_DIR": "", **environment})
    )
    return was_cached, hits, Path(folder), version, numbas_own


def test_each_version_of_numba_keeps_its_own_machine_code(package: Path, tmp_path: Path) -> None:
    """Two versions that share a folder overwrite each other's index, and each start of either compiles again."""
    cache = tmp_path / "cache"
    was_cached, hits, folder, version, numbas_own = call(package, XDG_CACHE_HOME=str(cache))
    assert (was_cached, hits, numbas_own) == (False, 0, ""), "and other users of numba keep their folder"
    assert folder.parent == cache / "kvmend" / f"numba-{version}-{sys.implementation.cache_tag}"
    assert not list(package.parent.rglob("*.nbi")), "nothing beside the source, which other versions read"
    assert call(package, XDG_CACHE_HOME=str(cache))[:2] == (True, 1)


def test_the_folder_that_the_operator_names_is_used(package: Path, tmp_path: Path) -> None:
    assert call(package, NUMBA_CACHE_DIR=str(tmp_path / "named"))[2].parent == tmp_path / "named"


def test_code_cached_before_an_edit_is_dropped(package: Path, tmp_path: Path) -> None:
    """Numba does not notice that a kernel of an unchanged file calls one that changed."""
    cache = str(tmp_path / "cache")
    call(package, XDG_CACHE_HOME=cache)
    (package.parent / "other.py").write_text(KERNEL)
    now = time.time()
    os.utime(package.parent / "other.py", (now + 50, now + 50))
    assert call(package, XDG_CACHE_HOME=cache)[:2] == (False, 0)
