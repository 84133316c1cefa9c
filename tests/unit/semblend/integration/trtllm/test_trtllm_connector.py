from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.semblend.integration.trtllm.stub_engine import BLOCK, StubEngine, StubRequest, arguments

from sembench.engine_events.summarize import summarize
from semblend.contract import DeclineReason, decode_line
from semblend.integration.trtllm import start
from semblend.integration.trtllm.link import link_of
from semblend.integration.trtllm.options import WHERE
from semblend.integration.trtllm.plan_kinds import PlanKind

VERSION = "1.2.1"


def words(seed: int, length: int) -> list[int]:
    return [int(token) for token in np.random.default_rng(seed).integers(0, 50_000, length)]


DOCUMENT = words(1, 800)


class Bench:
    """A stub engine with options, and what it wrote."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch, **options: Any) -> None:
        self.folder = folder
        self.audit_file, self.events_file = folder / "audit.jsonl", folder / "events.jsonl"
        given = {"audit": str(self.audit_file), "events": str(self.events_file), **options}
        patch.setenv(WHERE, json.dumps(given))
        patch.setattr("semblend.integration.trtllm.connector.installed_version", lambda: VERSION)
        self.engine = StubEngine(arguments(folder / "model"))
        self._serial = 0

    def serve(self, tokens: list[int], salt: str | None = None, **more: Any) -> int:
        self._serial += 1
        return self.engine.serve(StubRequest(self._serial, tokens, salt), **more)

    def audit(self, event: str) -> list[dict[str, Any]]:
        records = [json.loads(line) for line in self.audit_file.read_text().splitlines()]
        return [record for record in records if record["event"] == event]


@pytest.fixture
def off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    bench = Bench(tmp_path, monkeypatch)
    with closing(bench.engine):
        yield bench


@pytest.fixture
def on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    bench = Bench(tmp_path, monkeypatch, materialization="exact_prefix", validated_version=VERSION)
    with closing(bench.engine):
        yield bench


def test_by_default_it_finds_and_reports_and_promises_nothing(off: Bench) -> None:
    assert off.serve(words(2, 40) + DOCUMENT) == 0
    assert off.serve(words(3, 56) + DOCUMENT + words(4, 30)) == 0
    last = off.audit("lookup")[-1]
    assert last["found"] is True
    assert last["rejection_reason"] == "discovery_only"
    assert (last["kind"], last["publication"]) == ("request_local_segmented", "nothing")
    assert last["num_new_matched_tokens"] == 0
    assert len(off.engine.worker.half) == 0


def test_validated_exact_prefix_is_loaded_and_equals_cold_prefill(on: Bench) -> None:
    assert on.serve(DOCUMENT + words(2, 20)) == 0
    on.engine.forget_tree()
    spared = on.serve(DOCUMENT + words(3, 50))  # the stub compares every page with cold prefill
    assert spared == len(DOCUMENT) // BLOCK * BLOCK
    (materialized,) = on.audit("materialized")
    assert materialized["tokens"] == spared
    assert materialized["requires_rope_correction"] is False
    assert [record["tokens"] for record in on.audit("plan_dispatched")] == [spared]


def test_the_engines_own_prefix_wins_and_only_what_lies_beyond_is_loaded(on: Bench) -> None:
    on.serve(DOCUMENT + words(2, 20))
    assert on.serve(DOCUMENT + words(3, 50)) == 0, "the engine holds all of it"
    on.engine.tree = {key: page for key, page in on.engine.tree.items() if len(key[1]) <= 320}
    assert on.serve(DOCUMENT + words(4, 50)) == len(DOCUMENT) // BLOCK * BLOCK - 320


@pytest.mark.parametrize("front", [words(5, 40), words(5, BLOCK * 3)])
def test_moved_content_is_refused_because_the_engine_would_publish_it(on: Bench, front: list[int]) -> None:
    on.serve(DOCUMENT + words(2, 20))
    on.engine.forget_tree()
    assert on.serve(front + DOCUMENT + words(3, 50)) == 0
    assert on.audit("lookup")[-1]["rejection_reason"] == "unsupported_mode"
    assert on.audit("declined")[-1]["reason"] == "unsupported_mode"


def test_prefill_in_chunks_is_saved_once_and_whole(on: Bench) -> None:
    on.serve(DOCUMENT, chunk=100)
    on.engine.forget_tree()
    assert on.serve(DOCUMENT + words(3, 40), chunk=64) == len(DOCUMENT) // BLOCK * BLOCK
    assert len(on.audit("donor_registered")) == 1


@pytest.mark.parametrize(("first", "second"), [("a", "b"), ("a", None), (None, "a"), ("", None)])
def test_another_tenants_donor_is_not_there(on: Bench, first: str | None, second: str | None) -> None:
    on.serve(DOCUMENT, first)
    on.engine.forget_tree()
    assert on.serve(DOCUMENT + words(3, 40), second) == 0
    assert on.audit("lookup")[-1]["found"] is False
    on.engine.forget_tree()
    assert on.serve(DOCUMENT + words(4, 40), first) > 0


def test_a_request_that_tells_no_salt_is_nobodys(off: Bench) -> None:
    request: Any = SimpleNamespace(request_id=7, lora_task_id=None, get_tokens=lambda beam: DOCUMENT)
    off.engine.scheduler.get_num_new_matched_tokens(request, 0)
    assert off.audit("lookup")[-1]["rejection_reason"] == "namespace_unknown"
    off.engine.scheduler.request_finished(request, [])
    assert len(off.engine.scheduler.leader.donors) == 0


def test_a_model_whose_rotation_is_not_known_declines_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(WHERE, "")
    engine = StubEngine(arguments(tmp_path / "model", model="hub/name"))
    with closing(engine):
        request = StubRequest(1, DOCUMENT)
        assert engine.serve(request) == 0
        engine.forget_tree()
        engine.scheduler.get_num_new_matched_tokens(request, 0)
        record = engine.scheduler.leader.known(1)
        assert record is not None
        assert record.decline is not None
        assert record.decline.reason is DeclineReason.NAMESPACE_UNKNOWN


@pytest.mark.parametrize(
    ("changes", "version", "reason"),
    [
        ({}, "1.3.0", "validation_failure"),
        ({}, "", "validation_failure"),
        ({"tensor_parallel_size": 2}, VERSION, "unsupported_mode"),
        (
            {"kv_cache_config": SimpleNamespace(tokens_per_block=BLOCK, dtype="auto", max_attention_window=[256])},
            VERSION,
            "unsupported_mode",
        ),
    ],
)
def test_what_was_not_validated_loads_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], version: str, reason: str
) -> None:
    bench = Bench(tmp_path, monkeypatch, materialization="exact_prefix", validated_version=VERSION)
    bench.engine.close()
    monkeypatch.setattr("semblend.integration.trtllm.connector.installed_version", lambda: version)
    engine = StubEngine(arguments(tmp_path / "model", **changes))
    with closing(engine):
        leader = engine.scheduler.leader
        tokens = np.asarray(DOCUMENT, np.uint32)
        request = StubRequest(2, DOCUMENT + words(3, 40))
        engine.serve(StubRequest(1, DOCUMENT))
        assert len(leader.donors) == 0, "nothing is kept where nothing may be loaded"
        leader.matched_tokens(StubRequest(1, DOCUMENT), 0)
        record = leader.known(1)
        assert record is not None
        candidate = leader.donors.candidate("1", tokens, record.namespace)
        assert candidate is not None
        assert leader.donors.register(candidate)
        engine.forget_tree()
        assert engine.serve(request) == 0
        assert bench.audit("declined")[-1]["reason"] == reason


def test_a_cache_that_is_not_one_pool_is_refused(on: Bench) -> None:
    class Groups:
        def as_single_pool_tensor(self) -> None:
            return None

    on.serve(DOCUMENT)
    on.engine.forget_tree()
    on.engine.worker.register_kv_cache_layout(Groups())
    assert on.serve(DOCUMENT + words(3, 40)) == 0
    assert on.audit("declined")[-1]["reason"] == "validation_failure"


def test_a_cache_behind_a_sliding_window_is_refused(on: Bench) -> None:
    layout = SimpleNamespace(groups=(SimpleNamespace(window_size=256),), as_single_pool_tensor=lambda: on.engine.pool)
    on.serve(DOCUMENT)
    on.engine.forget_tree()
    on.engine.worker.register_kv_cache_layout(layout)
    assert on.serve(DOCUMENT + words(3, 40)) == 0
    assert on.audit("declined")[-1]["reason"] == "validation_failure"


def test_a_fault_in_a_look_up_is_cold_prefill_and_a_line(on: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    on.serve(DOCUMENT)
    on.engine.forget_tree()

    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("index is damaged")

    monkeypatch.setattr(on.engine.scheduler.leader._planner, "plan", broken)
    assert on.serve(DOCUMENT + words(3, 40)) == 0
    (fault,) = on.audit("fault_contained")
    assert "index is damaged" in fault["error"]


def test_pages_that_cannot_be_saved_make_no_donor(on: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise MemoryError("host is full")

    monkeypatch.setattr(on.engine.worker.half, "_save", broken)
    on.serve(DOCUMENT)
    on.engine.forget_tree()
    assert on.serve(DOCUMENT + words(3, 40)) == 0
    assert not on.audit("donor_registered")


def test_host_memory_is_bounded_and_the_oldest_donor_leaves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page_bytes = BLOCK * 8
    bench = Bench(tmp_path, monkeypatch, materialization="exact_prefix", validated_version=VERSION, host_bytes=1 << 20)
    with closing(bench.engine):
        monkeypatch.setattr(bench.engine.scheduler.leader.donors._book, "_budget", 3 * 20 * page_bytes)
        texts = [words(100 + n, 320) for n in range(5)]
        for text in texts:
            bench.serve(text)
        bench.engine.forget_tree()
        bench.serve(words(999, 64))  # its commands carry what was dropped
        assert len(bench.engine.worker.half) <= 4
        assert bench.serve(texts[0] + words(1, 40)) == 0
        bench.engine.forget_tree()
        assert bench.serve(texts[4] + words(1, 40)) == 320


def test_requests_whose_end_never_comes_do_not_pile_up(off: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    leader = off.engine.scheduler.leader
    monkeypatch.setattr(leader._records, "_max_records", 20)
    for number in range(50):
        leader.matched_tokens(StubRequest(number, [1, 2, 3]), 0)
    assert len(leader) == 20
    assert leader.known(29) is None
    assert leader.known(30) is not None


def test_both_halves_of_one_engine_share_a_link_and_two_engines_do_not(tmp_path: Path) -> None:
    first, second = arguments(tmp_path / "a"), arguments(tmp_path / "b")
    link = link_of(first)
    assert link_of(first) is link
    assert link_of(second) is not link


def test_the_bench_reads_the_audit_and_every_event_decodes(on: Bench) -> None:
    on.serve(DOCUMENT + words(2, 20))
    on.engine.forget_tree()
    spared = on.serve(DOCUMENT + words(3, 50))
    on.serve(words(9, 300))
    on.engine.close()
    with on.audit_file.open(encoding="utf-8") as lines:
        summary = summarize("trtllm", lines)
    assert summary.semantic_hits == 1
    assert summary.load_advertisements == 1
    assert summary.materialization_events == 1
    assert summary.materialized_tokens == spared
    assert summary.materialized_semantic_kv_reuse is True
    events = [decode_line(line) for line in on.events_file.read_text().splitlines()]
    assert {event.engine for event in events} == {"trtllm"}


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(1, 25), st.integers(0, 40)), min_size=2, max_size=6),
    st.sampled_from([None, 48, 100]),
)
def test_whatever_is_served_every_page_is_that_of_cold_prefill(
    tmp_path_factory: pytest.TempPathFactory, prompts: list[tuple[int, int, int]], chunk: int | None
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        bench = Bench(
            tmp_path_factory.mktemp("any"),
            patch,
            materialization="exact_prefix",
            validated_version=VERSION,
            min_run_tokens=16,
            min_donor_tokens=16,
            min_reuse_ratio=0.0,
            min_prompt_tokens=16,
        )
        with closing(bench.engine):
            for seed, blocks, tail in prompts:
                bench.serve(words(seed, blocks * 20) + words(seed + blocks, tail), chunk=chunk)
                bench.engine.forget_tree()


def test_the_installed_version_is_empty_without_the_engine() -> None:
    assert start.installed_version() == ""
    assert PlanKind("exact_prefix") is PlanKind.EXACT_PREFIX
