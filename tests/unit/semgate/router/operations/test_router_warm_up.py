"""Nothing is compiled while serving: a loop that the warm-up forgot would hold up every stream for seconds."""

from __future__ import annotations

import asyncio
import itertools
import sys
from pathlib import Path

import numpy as np
import pytest

import semblend
import semgate
from sembase.compiled import HAS_COMPILER
from semgate.fleet import Endpoint, Replica
from semgate.index.keys import request_keys
from semgate.router.operations.warm_up import warm_up
from semgate.router.state.known_blocks import KnownBlocks, sent_root


def compiled() -> dict[str, int]:
    """Signatures compiled so far, by loop."""
    found: dict[str, int] = {}
    for name, module in list(sys.modules.items()):
        if name.startswith(("semgate.index", "semblend.donors", "semgate.events")):
            for each in vars(module).values():
                if hasattr(each, "signatures") and hasattr(each, "py_func") and each.targetoptions.get("nogil"):
                    found[each.py_func.__name__] = len(each.signatures)
    return found


@pytest.mark.skipif(not HAS_COMPILER, reason="without numba nothing is compiled")
def test_serving_compiles_nothing() -> None:
    warm_up()
    before = compiled()
    kernels = _kernels()
    assert {name for name in kernels if before.get(name, 0) == 0} == set()

    async def serve() -> None:
        blocks = KnownBlocks(1 << 10, 0.1)
        replicas = [Replica(Endpoint(name, "http://x"), slot) for slot, name in enumerate("ab")]
        for each in replicas:
            blocks.add(each)
        keys = request_keys(np.arange(512, dtype=np.uint32), 16, sent_root("t", "m", "salt", None))
        for each in replicas:
            blocks.predicted(keys)
            blocks.sent(each.slot, keys)
            blocks.answered(each.slot, keys)
        await asyncio.sleep(0.25)  # beyond the time that history is believed, so that blocks expire
        blocks.predicted(keys)
        blocks.lose(replicas[0])
        blocks.remove(replicas[1])
        await blocks.close()

    asyncio.run(serve())
    assert {name: count for name, count in compiled().items() if count > before[name]} == {}


def _kernels() -> set[str]:
    """Names under ``@kernel`` in the source: a new loop must be warmed up."""
    found: set[str] = set()
    gate, blend = Path(semgate.__file__).parent, Path(semblend.__file__).parent
    for path in [
        path for folder in (gate / "index", gate / "events", blend / "donors") for path in folder.glob("*.py")
    ]:
        lines = path.read_text(encoding="utf-8").splitlines()
        found |= {
            after.removeprefix("def ").partition("(")[0]
            for line, after in itertools.pairwise(lines)
            if line == "@kernel"
        }
    return found
