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

# On a slow day not all of it may be begun (see tests/conftest.py): what matters most comes first, then what is brief;
# late comes what costs minutes for a few tests, the crowd first of it.
SOON, BRIEF, USUAL, LATE = range(4)
WHEN = {
    **dict.fromkeys(("vllm main", "vllm faulty", "sglang"), SOON),
    **dict.fromkeys(
        (
            "tests/engines/dynamo/test_dynamo_router.py",
            "tests/engines/dynamo/test_nats_events.py",
            "tests/engines/sglang/test_sglang_surface.py",
            "tests/engines/vllm/test_stats.py",
            "tests/engines/vllm/test_stubs.py",
            "tests/engines/vllm/test_support.py",
        ),
        BRIEF,
    ),
    **dict.fromkeys(
        ("vllm crowded", "vllm small", "vllm suggesting", "vllm disabled", "vllm fragments", "vllm segments"), LATE
    ),
}
STOCK_VLLM = {"test_server", "test_vllm_proxied"}
SHARED_SGLANG = {
    "test_sglang_blending",
    "test_sglang_donor_events",
    "test_sglang_edges",
    "test_sglang_fidelity",
    "test_sglang_proxied",
    "test_conformance",
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
    if file.stem in SHARED_SGLANG:
        return "sglang"
    if file.stem in STOCK_VLLM:
        return "vllm"
    chosen = re.search(r"\[(.*)\]$", nodeid)
    kinds = KINDS.keys() & (chosen.group(1).split("-") if chosen else ())
    return f"vllm {kinds.pop()}" if kinds else str(file)
