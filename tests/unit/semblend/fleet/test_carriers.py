"""What every carrier promises: names to bytes, read by ranges, all or nothing, bounded."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scripts.engines.mooncake import mooncake_missing, start_mooncake

from sembase.errors import ConfigurationError, MissingDependencyError
from semblend.fleet.carrier.base import CARRIERS, CarrierError, KvCarrier, Piece, TooShortError, open_carrier
from semblend.fleet.carrier.files import FOLDERS, FileCarrier

NAMES = [f"{number:032x}" for number in (1, 2, 1 << 120)]


KINDS = [pytest.param(name, marks=[pytest.mark.engine] if name == "mooncake" else []) for name in CARRIERS.names()]


@pytest.fixture(scope="module", params=KINDS)
def shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KvCarrier]:
    if request.param == "file":
        yield open_carrier(f"file://{tmp_path_factory.mktemp('store')}/kv", 1 << 30)
        return
    if (missing := mooncake_missing()) is not None:
        pytest.skip(missing)
    with start_mooncake(256 << 20) as store:
        yield open_carrier(store.url, 1 << 30)


@pytest.fixture
def carrier(shared: KvCarrier) -> KvCarrier:
    """Empty."""
    for name in NAMES:
        shared.drop(name)
    return shared


def data_of(seed: int, size: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, size, dtype=np.uint8)


@given(st.lists(st.tuples(st.sampled_from("prdc"), st.sampled_from(NAMES), st.integers(0, 9)), max_size=25))
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_it_behaves_like_a_dictionary_that_never_overwrites(
    carrier: KvCarrier, operations: list[tuple[str, str, int]]
) -> None:
    for name in NAMES:
        carrier.drop(name)
    held: dict[str, np.ndarray] = {}
    for kind, name, seed in operations:
        if kind == "p":
            data = data_of(seed, 100 + seed)
            assert carrier.put(name, data) == (name not in held)
            held.setdefault(name, data)
        elif kind == "r":
            into = [np.zeros(20 + seed, np.uint8), np.zeros(1, np.uint8)]
            assert carrier.read(name, [Piece(seed, into[0]), Piece(50, into[1])]) == (name in held)
            if name in held:
                np.testing.assert_array_equal(into[0], held[name][seed : 20 + 2 * seed])
                assert into[1][0] == held[name][50]
        elif kind == "d":
            assert carrier.drop(name) == (held.pop(name, None) is not None)
        assert carrier.contains(NAMES) == [name in held for name in NAMES]


def test_an_object_that_is_too_short_is_not_reported_as_missing(carrier: KvCarrier) -> None:
    carrier.put(NAMES[0], data_of(1, 100))
    assert carrier.read(NAMES[0], [Piece(60, np.zeros(40, np.uint8))])
    assert not carrier.read(NAMES[1], [Piece(60, np.zeros(40, np.uint8))])
    with pytest.raises(TooShortError):
        carrier.read(NAMES[0], [Piece(61, np.zeros(40, np.uint8))])


def test_of_many_writers_of_one_name_one_wins_whole(carrier: KvCarrier) -> None:
    won: list[int] = []

    def write(seed: int) -> None:
        if carrier.put(NAMES[0], np.full(200_000, seed, np.uint8)):
            won.append(seed)

    threads = [threading.Thread(target=write, args=(seed,)) for seed in range(1, 7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    into = np.zeros(200_000, np.uint8)
    assert carrier.read(NAMES[0], [Piece(0, into)])
    assert len(won) == 1
    assert (into == won[0]).all()


@pytest.mark.parametrize("name", ["", "../../etc/passwd", "AB" * 16, "ab/cd" * 4, "a" * 200])
def test_other_names_are_refused(carrier: KvCarrier, name: str) -> None:
    for call in (
        partial(carrier.put, name, data_of(1, 9)),
        partial(carrier.read, name, []),
        partial(carrier.drop, name),
    ):
        with pytest.raises(CarrierError, match="not the name"):
            call()


def test_readers_and_writers_beside_each_other_get_their_own_bytes(carrier: KvCarrier) -> None:
    names = [f"{number:032x}" for number in range(16)]
    wrong: list[str] = []

    def work(name: str, seed: int) -> None:
        data, into = data_of(seed, 300_000), [np.zeros(size, np.uint8) for size in (7, 100_000, 1)]
        carrier.put(name, data)
        for at in range(0, 190_000, 19_000):
            is_read = carrier.read(name, [Piece(at + part, buffer) for part, buffer in enumerate(into)])
            if not is_read or any((b != data[at + p : at + p + len(b)]).any() for p, b in enumerate(into)):
                wrong.append(name)
        carrier.drop(name)

    threads = [threading.Thread(target=work, args=(name, seed)) for seed, name in enumerate(names)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert not any(carrier.contains(names))


@pytest.mark.parametrize("url", ["", "kv", "file://", "/mnt/kv"])
def test_a_url_without_scheme_or_place_says_what_to_write(url: str) -> None:
    with pytest.raises(ConfigurationError, match="file:///mnt/kv"):
        open_carrier(url, 1)


def test_a_missing_mooncake_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "mooncake" in CARRIERS.names(), "known without its package"
    monkeypatch.delitem(sys.modules, "semblend.fleet.carrier.mooncake", raising=False)
    monkeypatch.setitem(sys.modules, "mooncake", None)
    monkeypatch.setitem(sys.modules, "mooncake.store", None)
    with pytest.raises(MissingDependencyError, match=r"mooncake-transfer-engine.*kvmend\[mooncake\]"):
        from semblend.fleet.carrier import mooncake  # noqa: F401


def test_a_folder_keeps_what_was_read_last_and_never_more_than_its_part(tmp_path: Path) -> None:
    carrier = FileCarrier(str(tmp_path), max_bytes=FOLDERS * 300)
    names = [f"aa{number:030x}" for number in range(4)]
    for at, name in enumerate(names[:3]):
        carrier.put(name, data_of(at, 100))
        os.utime(tmp_path / "aa" / name, ns=(at, at))
    carrier.read(names[0], [])  # the oldest file is read again
    carrier.put(names[3], data_of(3, 100))
    assert carrier.contains(names) == [True, False, True, True]
    carrier.put(f"bb{0:030x}", data_of(4, 5000))
    assert carrier.contains([f"bb{0:030x}"]) == [True], "the newest object of a folder stays, whatever its size"
    assert carrier.contains(names) == [True, False, True, True], "one folder says nothing of another"


def test_a_dead_writers_file_is_never_read_and_goes_with_the_rest(tmp_path: Path) -> None:
    carrier = FileCarrier(str(tmp_path), max_bytes=FOLDERS * 300)
    name = f"aa{0:030x}"
    (tmp_path / "aa").mkdir()
    (tmp_path / "aa" / f".{name}.0123").write_bytes(bytes(290))
    os.utime(tmp_path / "aa" / f".{name}.0123", ns=(0, 0))
    assert not carrier.read(name, [])
    carrier.put(name, data_of(1, 100))
    assert [entry.name for entry in (tmp_path / "aa").iterdir()] == [name]


def test_a_pipe_or_a_link_under_a_name_does_not_block_and_is_not_read(tmp_path: Path) -> None:
    carrier = FileCarrier(str(tmp_path), max_bytes=1 << 20)
    (tmp_path / "aa").mkdir()
    os.mkfifo(tmp_path / "aa" / f"aa{0:030x}")
    with pytest.raises(TooShortError):
        carrier.read(f"aa{0:030x}", [Piece(0, np.zeros(1, np.uint8))])
    (tmp_path / "secret").write_bytes(b"not for readers")
    (tmp_path / "aa" / f"aa{1:030x}").symlink_to(tmp_path / "secret")
    with pytest.raises(CarrierError):
        carrier.read(f"aa{1:030x}", [Piece(0, np.zeros(1, np.uint8))])


def test_files_are_private(tmp_path: Path) -> None:
    FileCarrier(str(tmp_path), 1 << 20).put(NAMES[0], data_of(1, 10))
    assert (tmp_path / "00" / NAMES[0]).stat().st_mode & 0o777 == 0o600


def test_a_full_file_system_is_a_carrier_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    carrier = FileCarrier(str(tmp_path), 1 << 20)
    monkeypatch.setattr(os, "link", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    monkeypatch.setattr(os, "rename", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(CarrierError, match="No space left"):
        carrier.put(NAMES[0], data_of(1, 10))
    assert not list((tmp_path / "00").iterdir())
