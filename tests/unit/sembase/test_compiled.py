from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sembase.compiled import _drop_stale_caches

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


def test_code_cached_before_an_edit_is_dropped(tmp_path: Path) -> None:
    source = tmp_path / "module.py"
    source.write_text("@kernel\n")
    cache = tmp_path / "__pycache__"
    cache.mkdir()
    for name in ("old.nbi", "new.nbi"):
        (cache / name).write_text("")
    now = time.time()
    os.utime(cache / "old.nbi", (now - 100, now - 100))
    os.utime(source, (now - 50, now - 50))
    _drop_stale_caches(tmp_path)
    assert [path.name for path in cache.iterdir()] == ["new.nbi"]
