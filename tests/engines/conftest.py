"""Tests that share a server go to one worker, so that two workers start each server once and use two cores.

Servers of these tests compute with one thread that is bound to no core: two threads that wait for each other at every
step both stop whenever the machine gives one of its cores to another process.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.engines.vllm.connector.kinds import KINDS

# What matters most comes first. Then what takes minutes, so that both workers have something to do until the end. On a
# slow day not all of it may be begun (see tests/conftest.py): last comes what is brief and shows the least.
SOON, LONG, USUAL, LATE = range(4)
WHEN = {
    **dict.fromkeys(("vllm main", "vllm faulty", "sglang"), SOON),
    **dict.fromkeys(
        (
            "vllm crowded",
            "tests/engines/sglang/test_sglang_tree.py",
            "tests/engines/sglang/test_sglang_hicache.py",
            "tests/engines/sglang/test_sglang_edges.py",
            "tests/engines/vllm/connector/test_guard_real.py",
            "tests/engines/gpusim/test_gpusim.py",
            "tests/engines/model_matrix/test_model_matrix.py",
        ),
        LONG,
    ),
    **dict.fromkeys(("vllm small", "vllm suggesting", "vllm disabled", "vllm fragments", "vllm segments"), LATE),
}
STOCK_VLLM = {"test_server", "test_vllm_proxied"}
SHARED_SGLANG = {
    "test_sglang_blending",
    "test_sglang_donor_events",
    "test_sglang_fidelity",
    "test_sglang_proxied",
    "test_conformance",
    "test_golden",
}


class ByServer(LoadScopeScheduling):
    def _split_scope(self, nodeid: str) -> str:
        return server_of(nodeid)


# Not by marks ("loadgroup"): they travel in the ids of tests, which pytest 9 no longer lets be changed.
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> ByServer:
    return ByServer(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: WHEN.get(server_of(item.nodeid), USUAL))


def server_of(nodeid: str) -> str:
    """Which server a test talks to, by its id; tests of a file that starts one of its own share that."""
    file = Path(nodeid.partition("::")[0])
    if driver := re.search(r"vllm_server\w*", nodeid):
        return driver.group()
    if file.stem in SHARED_SGLANG:
        return "sglang"
    if file.stem in STOCK_VLLM:
        return "vllm"
    chosen = re.search(r"\[(.*)\]$", nodeid) if file.parent.name == "connector" else None
    kinds = KINDS.keys() & (chosen.group(1).split("-") if chosen else ())
    return f"vllm {kinds.pop()}" if kinds else str(file)
