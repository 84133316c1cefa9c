"""Parts of a real Mooncake Store that die or stop during reads: an error or a miss, no hang, never other bytes."""

from __future__ import annotations

import importlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scripts.engines.mooncake import MooncakeStore, mooncake_missing, start_mooncake
from tests.waiting import wait_until

from sembase.errors import ConfigurationError
from semblend.fleet.carrier.base import CarrierError, KvCarrier, Piece, open_carrier

pytestmark = pytest.mark.engine
nightly = pytest.mark.nightly  # another program's faults, each until limits of its own have passed

SIZE = 64 << 20
NAME, OTHER = f"{1:032x}", f"{2:032x}"
PATIENCE_S = 120.0  # what a hang is; the store's own limits are seconds


@pytest.fixture
def store() -> Iterator[MooncakeStore]:
    if (missing := mooncake_missing()) is not None:
        pytest.skip(missing)
    with start_mooncake(512 << 20) as started:
        yield started


@pytest.fixture
def carrier(store: MooncakeStore) -> KvCarrier:
    opened = open_carrier(store.url, 1)
    opened.put(NAME, data())
    return opened


def data() -> np.ndarray:
    return np.random.default_rng(7).integers(0, 256, SIZE, dtype=np.uint8)


def answer(call: Callable[[], bool]) -> bool | None:
    """What it returns; None if the store cannot be reached. A call that hangs fails the test."""
    pool = ThreadPoolExecutor(1)
    try:
        return pool.submit(call).result(PATIENCE_S)
    except CarrierError:
        return None
    finally:
        pool.shutdown(wait=False)


def until(wanted: bool | None, call: Callable[[], bool]) -> None:
    wait_until(lambda: answer(call) is wanted)


def read(carrier: KvCarrier, into: np.ndarray, name: str = NAME) -> bool:
    return carrier.read(name, [Piece(0, into)])


@nightly
@pytest.mark.parametrize("part", ["node", "master"])
@pytest.mark.parametrize("fault", [signal.SIGKILL, signal.SIGSTOP])
def test_a_part_that_ends_during_reads_costs_them_and_nothing_else(
    store: MooncakeStore, carrier: KvCarrier, part: str, fault: signal.Signals
) -> None:
    expected, into = data(), np.zeros(SIZE, np.uint8)
    assert read(carrier, into)
    server = getattr(store, part)
    timer = threading.Timer(0.03, os.kill, [server.pid, fault])
    timer.start()
    is_over = False
    while not is_over:
        is_over = not timer.is_alive()  # the last read begins after the fault
        into[:] = 0
        answered = answer(lambda: read(carrier, into))
        if answered:
            np.testing.assert_array_equal(into, expected)
    assert answered is not True
    assert answer(lambda: carrier.put(OTHER, expected[:1000])) is not True

    into[:] = 77  # a read that was given up must not write when its node continues
    if fault is signal.SIGSTOP:
        os.kill(server.pid, signal.SIGCONT)
    elif part == "node":
        store.restart_node()
    else:
        store.restart_master()
    name = f"{3:032x}"
    until(True, lambda: carrier.contains([name])[0] or carrier.put(name, expected[:1000]))
    back = np.zeros(1000, np.uint8)
    until(True, lambda: read(carrier, back, name))
    np.testing.assert_array_equal(back, expected[:1000])
    assert (into == 77).all()


@nightly
def test_a_store_that_is_not_there_is_an_error_and_is_found_when_it_comes(store: MooncakeStore) -> None:
    store.master.stop()
    carrier = open_carrier(store.url, 1)
    assert answer(lambda: read(carrier, np.zeros(9, np.uint8))) is None
    assert answer(lambda: carrier.contains([NAME])[0]) is None
    store.restart_master()
    until(True, lambda: carrier.contains([NAME])[0] or carrier.put(NAME, data()[:1000]))


@nightly
def test_a_connection_is_set_up_only_with_a_master_that_listens(
    store: MooncakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without one, Mooncake's set-up would hold the interpreter lock for seconds, and all requests would wait."""
    mooncake: Any = importlib.import_module("semblend.fleet.carrier.mooncake")
    made, make = [], mooncake.MooncakeDistributedStore

    def connect() -> Any:
        made.append("a connection")
        return make()

    monkeypatch.setattr(mooncake, "MooncakeDistributedStore", connect)
    store.master.stop()
    carrier = open_carrier(store.url, 1)
    assert answer(lambda: carrier.contains([NAME])[0]) is None
    assert not made
    store.restart_master()
    until(False, lambda: carrier.contains([OTHER])[0])
    assert made


@nightly
def test_a_full_store_refuses_or_makes_room_and_keeps_bytes_right(store: MooncakeStore) -> None:
    carrier, expected = open_carrier(store.url, 1), data()
    names = [f"{number:032x}" for number in range(10, 24)]  # 896 MB into 512
    for name in names:
        answer(lambda name=name: carrier.put(name, expected))  # type: ignore[misc]
    into = np.zeros(1000, np.uint8)
    held = [name for name in names if answer(lambda name=name: read(carrier, into, name))]  # type: ignore[misc]
    assert 0 < len(held) < len(names)
    for name in held:
        if answer(lambda name=name: carrier.read(name, [Piece(SIZE - 1000, into)])):  # type: ignore[misc]
            np.testing.assert_array_equal(into, expected[-1000:])


@pytest.mark.parametrize(
    "url", ["mooncake://here", "mooncake://here:port", "mooncake:///here", "mooncake://here:1?prot=rdma"]
)
def test_a_url_without_a_masters_address_says_what_to_write(url: str) -> None:
    if (missing := mooncake_missing()) is not None:
        pytest.skip(missing)
    with pytest.raises(ConfigurationError, match="mooncake://localhost:50051"):
        open_carrier(url, 1)


@nightly
def test_with_snapshots_objects_that_were_read_outlive_the_master(tmp_path: Path) -> None:
    if (missing := mooncake_missing()) is not None:
        pytest.skip(missing)
    with start_mooncake(256 << 20, tmp_path) as store:
        carrier, expected, into = open_carrier(store.url, 1), data()[: 1 << 20], np.zeros(1 << 20, np.uint8)
        assert carrier.put(NAME, expected)
        assert carrier.put(OTHER, expected)
        assert read(carrier, into)
        for _ in range(2):  # the first may have begun before the read
            before = latest(tmp_path)
            wait_until(lambda before=before: latest(tmp_path) != before)  # type: ignore[misc]
        os.kill(store.master.pid, signal.SIGKILL)
        store.restart_master()
        into[:] = 0
        until(True, lambda: read(carrier, into))
        np.testing.assert_array_equal(into, expected)
        assert carrier.contains([OTHER]) == [False], "if it is kept without a read now, the guide may say so"


def latest(snapshots: Path) -> list[str]:
    return [path.read_text() for path in snapshots.rglob("latest.txt")]
