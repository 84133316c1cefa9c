"""Compute threads of a server on a CPU: the engine's own rule, with our connector and without one."""

from __future__ import annotations

import logging
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pytest

from semblend.doctor.cpu_threads import BINDING, RESERVED, CpuThreads, read_threads

cpu_resource_utils: Any = import_module("vllm.utils.cpu_resource_utils")
ompmultiprocessing: Any = import_module("vllm.utils.ompmultiprocessing")
pytestmark = pytest.mark.engine
ONE = SimpleNamespace(local_world_size=1, data_parallel_rank_local=None, _api_process_count=1)
TWO = SimpleNamespace(local_world_size=2, data_parallel_rank_local=None, _api_process_count=1)


@pytest.fixture(autouse=True)
def nothing_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (BINDING, RESERVED):
        monkeypatch.delenv(name, raising=False)


def machine(monkeypatch: pytest.MonkeyPatch, cores: int, nodes: int = 1) -> None:
    """Physical cores, two logical ones each, spread over the nodes."""
    found = [
        cpu_resource_utils.LogicalCPUInfo(id=core + cores * thread, physical_core=core, numa_node=core * nodes // cores)
        for core in range(cores)
        for thread in (0, 1)
    ]
    monkeypatch.setattr(cpu_resource_utils, "get_allowed_cpu_list", lambda: found)
    monkeypatch.setattr(cpu_resource_utils, "get_visible_memory_node", lambda: list(range(nodes)))


def bound(parallel: Any, *, connector: bool) -> list[list[int]]:
    config = SimpleNamespace(parallel_config=parallel, kv_transfer_config=object() if connector else None)
    lists: list[list[int]] = ompmultiprocessing.OMPProcessManager(config).cpu_lists
    return lists


@pytest.mark.parametrize(
    ("cores", "nodes", "parallel", "stock", "connected"),
    [
        (1, 1, ONE, (1,), (1,)),
        (2, 1, ONE, (1,), (2,)),
        (3, 1, ONE, (2,), (1,)),
        (4, 1, ONE, (3,), (2,)),
        (32, 1, ONE, (31,), (30,)),
        (8, 2, TWO, (3, 3), (2, 2)),
        (4, 2, TWO, (1, 1), (2, 2)),
    ],
)
def test_a_server_with_the_connector_gets_the_cores_of_one_without(
    cores: int,
    nodes: int,
    parallel: Any,
    stock: tuple[int, ...],
    connected: tuple[int, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine(monkeypatch, cores, nodes)
    threads = read_threads(parallel)
    assert threads is not None
    assert (threads.stock, threads.connected) == (stock, connected)
    without = bound(parallel, connector=False)
    for name, value in threads.environment.items():
        monkeypatch.setenv(name, value)
    assert bound(parallel, connector=True) == without
    assert bool(threads.environment) == (stock != connected)


@pytest.mark.parametrize(("name", "value"), [(BINDING, "0"), (BINDING, "nobind"), (RESERVED, "0"), (RESERVED, "3")])
def test_what_the_user_set_stays(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, 8)
    monkeypatch.setenv(name, value)
    threads = read_threads(ONE)
    assert threads is not None
    assert threads.stock == threads.connected
    assert threads.environment == {}


def test_a_machine_the_engine_cannot_bind_threads_on_is_left_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, 8)
    assert read_threads(TWO) is None, "two workers, one node: the engine itself will refuse"
    monkeypatch.delattr(ompmultiprocessing, "OMPProcessManager")
    assert read_threads(ONE) is None, "another version"


def test_this_machine_has_threads_and_the_log_none_of_the_question(caplog: pytest.LogCaptureFixture) -> None:
    """Two bindings in the log before the server's own would be read as the server's."""
    log = logging.getLogger("vllm.utils.ompmultiprocessing")
    caplog.set_level(logging.INFO, logger=log.name)
    log.addHandler(caplog.handler)
    try:
        assert isinstance(read_threads(ONE), CpuThreads)
        assert caplog.messages == []
        bound(ONE, connector=False)
        assert any("core ids" in line for line in caplog.messages), "the engine's log continues"
    finally:
        log.removeHandler(caplog.handler)
