"""Decision records: they round-trip, the ring and the files stay bounded, and every one can be explained."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sembase.errors import ConfigurationError, ContractError
from semgate.router.operations.explain import OUTCOMES, ROUTES, explain
from semgate.router.state.decisions import (
    MAX_SCORES,
    Attempt,
    DecisionLog,
    DecisionRecord,
    DecisionRing,
    find_decisions,
    record_from_json,
)

RECORD = DecisionRecord(
    request_id="r1",
    at_unix_ms=1_700_000_000_000,
    path="/v1/chat/completions",
    tenant="t0",
    session=None,
    stream=True,
    replica="a",
    route="exact_route",
    policy="precise_prefix",
    reason="cached prefix saves 120 ms",
    exact_blocks=12,
    prompt_blocks=20,
    donor_tokens=0,
    similarity=0.25,
    scores_ms=(("a", 100.0), ("b", -3.5)),
    decide_us=42.0,
    attempts=(Attempt("b", None, "connect", 1.5), Attempt("a", 200, None, 30.0)),
    outcome="complete",
    status=200,
    first_byte_ms=31.0,
    ttft_ms=32.0,
    total_ms=90.0,
    answer_bytes=1234,
    prompt_tokens=330,
    cached_tokens=192,
)
names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12)


@given(
    request_id=names,
    scores=st.lists(st.tuples(names, st.floats(-1e6, 1e6)), max_size=MAX_SCORES),
    attempts=st.lists(
        st.builds(Attempt, names, st.none() | st.integers(100, 599), st.none() | names, st.floats(0, 1e6))
    ),
    similarity=st.none() | st.floats(0, 1),
    status=st.none() | st.integers(100, 599),
)
def test_a_record_comes_back_as_it_was(
    request_id: str,
    scores: list[tuple[str, float]],
    attempts: list[Attempt],
    similarity: float | None,
    status: int | None,
) -> None:
    record = replace(
        RECORD,
        request_id=request_id,
        scores_ms=tuple(scores),
        attempts=tuple(attempts),
        similarity=similarity,
        status=status,
    )
    assert record_from_json(json.loads(json.dumps(record.as_record()))) == record
    assert request_id in explain(record)


@pytest.mark.parametrize("damage", [{}, {"schema": "other"}, {"schema": "semgate.decision.v1"}, [], None])
def test_what_is_no_record_is_refused(damage: object) -> None:
    with pytest.raises(ContractError):
        record_from_json(damage)


@given(st.integers(0, 5), st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from("tu")), max_size=30))
def test_the_ring_keeps_the_latest_of_each_id_and_tenant(capacity: int, asked: list[tuple[str, str]]) -> None:
    ring = DecisionRing(capacity)
    latest: dict[tuple[str, str], int] = {}
    for number, (request_id, tenant) in enumerate(asked):
        ring.add(replace(RECORD, request_id=request_id, tenant=tenant, answer_bytes=number))
        latest.pop((request_id, tenant), None)
        latest[request_id, tenant] = number
    expected = list(latest.items())[::-1][:capacity]
    assert [((each.request_id, each.tenant), each.answer_bytes) for each in ring.latest(100)] == expected
    for request_id in "abcd":
        numbers = [number for (each, _), number in expected if each == request_id]
        assert [found.answer_bytes for found in ring.find(request_id)] == numbers


def test_files_are_rotated_and_bounded(tmp_path: Path) -> None:
    line_bytes = len(json.dumps(replace(RECORD, request_id="r00").as_record(), separators=(",", ":"))) + 1
    log = DecisionLog(tmp_path, files=3, file_bytes=2 * line_bytes)
    log.start()
    for number in range(20):
        log.add(replace(RECORD, request_id=f"r{number:02d}"))
    log.close()
    files = sorted(tmp_path.glob("decisions-*.jsonl"))
    assert len(files) == 3
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}, "they hold digests"
    assert sum(path.stat().st_size for path in files) == 6 * line_bytes
    assert [each.request_id for each in find_decisions(tmp_path, "r19")] == ["r19"]
    assert find_decisions(tmp_path, "r00") == []
    assert find_decisions(tmp_path, "r1") == [], "a part of an id is another id"
    assert (log.dropped, log.failed) == (0, 0)


def test_a_torn_line_is_passed_over_and_the_latest_comes_first(tmp_path: Path) -> None:
    log = DecisionLog(tmp_path, files=2, file_bytes=1 << 20)
    log.start()
    for number in range(3):
        log.add(replace(RECORD, answer_bytes=number))
    log.close()
    (path,) = tmp_path.glob("*.jsonl")
    path.write_bytes(path.read_bytes() + b'{"schema":"semgate.decision.v1","request_id":"r1","at_un')
    assert [each.answer_bytes for each in find_decisions(tmp_path, "r1", limit=2)] == [2, 1]


def test_a_full_queue_drops_and_counts_instead_of_waiting(tmp_path: Path) -> None:
    log = DecisionLog(tmp_path, files=1, file_bytes=1 << 20, queue_records=2)
    for _ in range(5):
        log.add(RECORD)  # the thread has not started
    assert log.dropped == 3
    log.start()
    log.close()
    assert len(find_decisions(tmp_path, "r1")) == 2


def test_a_disk_that_refuses_is_counted_and_stops_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "gone"
    log = DecisionLog(folder, files=1, file_bytes=1 << 20)
    log.start()
    folder.rmdir()
    folder.write_text("in the way")
    log.add(RECORD)
    log.close()
    assert log.failed == 1


def test_a_folder_that_cannot_be_made_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(ConfigurationError, match="--decision-files 0"):
        DecisionLog(tmp_path / "file" / "folder", files=1, file_bytes=1).start()


def test_an_explanation_says_where_why_and_how_it_ended() -> None:
    text = explain(RECORD)
    for words in (
        "placed on   a by precise_prefix (42 us)",
        "cached prefix saves 120 ms",
        "12 of 20 blocks exact",
        "similarity 0.250",
        "attempt 1   b: no answer, connect after 1.5 ms",
        "attempt 2   a: status 200 after 30.0 ms",
        "reported 330 prompt tokens, cached: 192",
        "answered completely, status 200",
    ):
        assert words in text
    assert "reuse" not in text, "a route does not claim reuse"
    assert set(ROUTES) == {"exact_route", "semantic_placement", "cold_route", "error_fallback"}
    assert set(OUTCOMES) == {"complete", "cut", "client_left", "refused"}
