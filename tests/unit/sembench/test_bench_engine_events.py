"""Engine logs: what counts in each dialect, what must not, and that no line can stop, slow or deceive the reader.

To accept a changed summary: ``PYTHONPATH=src python tests/unit/sembench/test_bench_engine_events.py``.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sembase.errors import ConfigurationError
from sembench.engine_events import tally as tally_module
from sembench.engine_events.dialects import DIALECTS
from sembench.engine_events.log_message import message_of
from sembench.engine_events.summarize import MAX_LINE_BYTES, lines_of, summarize
from sembench.engine_events.summary import EngineSummary
from sembench.gates.engine_summary import read_engine_summaries
from semblend.contract import (
    Declined,
    DonorRegistered,
    Event,
    EventLine,
    FaultContained,
    LoadAdvertised,
    LookupFinished,
    Materialized,
    encode_line,
)
from semblend.outcome.log_lines import log_line

GOLDEN = Path(__file__).parent / "golden" / "engine_events"
SRC = Path(__file__).parents[3] / "src"
LOGS = {
    "vllm.log": "vllm",
    "sglang.log": "sglang",
    "sglang_segmented.log": "sglang",
    "trtllm.jsonl": "trtllm",
    "lmcache.log": "lmcache",
    "semblend.jsonl": "semblend",
}
ENGINES = sorted(set(LOGS.values()))
# The contract (BENCH.md): these and no others.
KEYS = [
    "engine",
    "donor_registrations",
    "semantic_hits",
    "load_advertisements",
    "materialization_events",
    "materialized_tokens",
    "materialized_units",
    "rope_corrections",
    "engine_boundaries",
    "rejection_reasons",
    "errors",
    "runtime_warnings",
    "events",
    "materialized_semantic_kv_reuse",
]


def golden_summary(name: str) -> EngineSummary:
    with (GOLDEN / name).open("rb") as stream:
        return summarize(LOGS[name], lines_of(stream))


def golden_lines(name: str) -> list[str]:
    with (GOLDEN / name).open("rb") as stream:
        return list(lines_of(stream))


def as_text(summary: EngineSummary) -> str:
    return json.dumps(summary.to_json(), indent=1) + "\n"


def expected_file(name: str) -> Path:
    return GOLDEN / f"{Path(name).stem}.summary.json"


def listed(summary: EngineSummary, kind: str) -> list[Any]:
    return [event for event in summary.events if event["event"] == kind]


def read_counts(summary: EngineSummary) -> tuple[int, int, int, int]:
    read = summary.events[0]
    return read["lines"], read["understood"], read["other"], read["damaged"]


# -- golden files ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(LOGS))
def test_the_golden_log_gives_the_golden_summary(name: str) -> None:
    assert as_text(golden_summary(name)) == expected_file(name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", sorted(LOGS))
def test_a_summary_has_exactly_the_agreed_keys_and_the_gates_read_it(name: str, tmp_path: Path) -> None:
    summary = golden_summary(name)
    assert list(summary.to_json()) == KEYS
    path = tmp_path / "summary.json"
    path.write_text(as_text(summary))
    evidence = read_engine_summaries([path])
    assert evidence.materialized_tokens == summary.materialized_tokens
    assert evidence.errors == len(summary.errors)
    assert bool(evidence.joined_requests) == summary.materialized_semantic_kv_reuse


@pytest.mark.parametrize("name", sorted(LOGS))
def test_every_line_is_accounted_for_and_every_event_names_its_line(name: str) -> None:
    summary, lines = golden_summary(name), golden_lines(name)
    total, understood, other, damaged = read_counts(summary)
    assert total == len(lines) == understood + other + damaged
    for event in summary.events[1:]:
        named = event.get("request_id")
        if named is not None and "joined_by" not in event:
            assert named in lines[event["line"] - 1]


# -- vLLM ------------------------------------------------------------------------------------------------------------


def test_our_own_log_lines_and_our_own_events_give_the_same_figures() -> None:
    """Two sources of the same events must not disagree."""
    happenings: list[Event] = [
        DonorRegistered("cmpl-d-0-8b977127", "d0", "ns", 1011, 64),
        LookupFinished("cmpl-a-0-8b977127", "ns", 1024, 0, 897, 2, ("d0",)),
        LoadAdvertised("cmpl-a-0-8b977127", ("d0",), 1001, 0),
        Materialized("cmpl-a-0-8b977127", ("d0",), 897, 104, 2, 1.5, 70.0),
        LookupFinished("cmpl-b-0-8b977127", "ns", 90, 0, 0, 0, (), None, "no_candidate"),
        Declined("cmpl-b-0-8b977127", "no_candidate"),
        FaultContained("cmpl-c-0-8b977127", "load", "StoreError: gone"),
    ]
    log = [f"(EngineCore pid=1) INFO 11-15 07:19:15 [start.py:55] {text}" for e in happenings if (text := log_line(e))]
    stream = [encode_line(EventLine(event, "vllm", i, float(i))) for i, event in enumerate(happenings)]
    from_log, from_stream = summarize("vllm", log).to_json(), summarize("semblend", stream).to_json()
    for key in KEYS:
        if key not in ("engine", "events", "errors", "materialized_units"):
            assert from_log[key] == from_stream[key], key
    assert len(from_log["errors"]) == len(from_stream["errors"]) == 1
    assert from_log["materialized_semantic_kv_reuse"] is True
    assert (from_log["materialized_units"], from_stream["materialized_units"]) == (None, 2)


HIT = "SemBlend semantic lookup hit request_id={} donor_id=d similarity=0.9 kind=k reusable_tokens=880 reason=r"
LOADED = "SemBlend materialized request_id={} donor_id=d tokens={}"


def test_a_hit_and_a_load_of_different_requests_are_no_reuse() -> None:
    apart = summarize("vllm", [HIT.format("a"), LOADED.format("b", 880)])
    assert (apart.semantic_hits, apart.materialization_events) == (1, 1)
    assert apart.materialized_semantic_kv_reuse is False
    assert summarize("vllm", [HIT.format("a"), LOADED.format("a", 880)]).materialized_semantic_kv_reuse is True


def test_a_promise_a_beginning_or_an_empty_load_is_no_reuse() -> None:
    lines = [
        HIT.format("a"),
        "SemBlend request-local experimental load advertised request_id=a donor_id=d tokens=880",
        "SemBlend materializing request_id=a donor_id=d tokens=880",
        LOADED.format("a", 0),
    ]
    summary = summarize("vllm", lines)
    assert (summary.load_advertisements, summary.materialization_events, summary.materialized_tokens) == (1, 0, 0)
    assert summary.materialized_semantic_kv_reuse is False
    assert listed(summary, "materialized") == []
    assert len(listed(summary, "nothing_loaded")) == 1


def test_a_request_that_is_asked_about_twice_is_one_hit() -> None:
    assert summarize("vllm", [HIT.format("a"), HIT.format("a"), HIT.format("b")]).semantic_hits == 2


@pytest.mark.parametrize(
    "line",
    [
        "INFO 11-15 07:19:17 [logger.py:39] Received request cmpl-1: prompt: '{}', params: SamplingParams(n=1)",
        'INFO:     10.0.0.1:5 - "POST /v1/completions?x={} HTTP/1.1" 200 OK',
        "user said: {}",
        "prompt='{}'",
        "INFO 11-15 07:19:17 [logger.py:39] a word | {}",
    ],
)
def test_a_prompt_in_the_log_confirms_nothing(line: str) -> None:
    summary = summarize("vllm", [HIT.format("a"), line.format(LOADED.format("a", 880))])
    assert summary.materialization_events == 0
    phase = "[FUZZY RADIX] segmented prefill realized donor phase: rid=a donor_tokens=8 target=[0,8)"
    assert summarize("sglang", [line.format(phase)]).materialization_events == 0
    assert summarize("lmcache", [line.format("Retrieved 8 out of 8 required tokens")]).materialization_events == 0


@pytest.mark.parametrize(
    "header",
    [
        "",
        "INFO connector.py:619: ",
        "(EngineCore_DP0 pid=480732) INFO 11-15 07:19:15 [start.py:55] ",
        "\x1b[0;36m(EngineCore pid=1)\x1b[0;0m INFO 11-15 07:19:15 [start.py:55] ",
        "2026-11-15T07:19:15.123456789Z INFO 11-15 07:19:15 [start.py:55] ",
        "2026-11-15T07:19:15.123456789Z stdout F (EngineCore pid=1) INFO 11-15 07:19:15 [start.py:55] ",
        "[pod/vllm-0/vllm] (EngineCore pid=1) INFO 11-15 07:19:15 [start.py:55] ",
        "vllm-1  | (EngineCore pid=1) INFO 11-15 07:19:15 [start.py:55] ",
        "INFO:vllm.semblend:",
        "2026-11-15 07:19:15,123 - INFO - ",
        "\rProcessed prompts:   0%|          | 0/1 [00:00<?, ?it/s](EngineCore pid=1) INFO 11-15 07:19:15 [a.py:5] ",
    ],
)
def test_whatever_loggers_put_in_front_is_not_the_message(header: str) -> None:
    assert message_of(header + LOADED.format("a", 880) + "\r\n") == LOADED.format("a", 880)
    assert message_of(header + "[FUZZY] Realized 5 fuzzy tokens") == "[FUZZY] Realized 5 fuzzy tokens"


@pytest.mark.parametrize(
    "line",
    [
        "SemBlend materialized request_id=a donor_id=d tokens=",
        "SemBlend materialized request_id=a donor_id=d tokens=-5",
        "SemBlend materialized request_id=a donor_id=d tokens=12e3",
        "SemBlend materialized request_id=a donor_id=d tokens=9999999999999",
        "SemBlend materialized request_id= donor_id=d tokens=5",
        "SemBlend materialized donor_id=d tokens=5",
        "SemBlend materialized",
        "SemBlend materialized request_id=" + "a" * 300 + " donor_id=d tokens=5",
    ],
)
def test_a_damaged_line_counts_as_damage_only(line: str) -> None:
    summary = summarize("vllm", [line])
    assert summary.materialization_events == 0
    assert read_counts(summary) == (1, 0, 0, 1)


# -- SGLang ----------------------------------------------------------------------------------------------------------

MATCH = "[FUZZY RADIX] Fuzzy match success: rid={} cached={}, prompt=1024, offset=0, quality_cosine=0.910"
REALIZED = "[FUZZY] Realized {} fuzzy tokens (contiguous): copied donor KV with RoPE correction"
PHASE = (
    "[FUZZY RADIX] segmented prefill realized donor phase: rid={} donor_tokens={} target=[0,{}) direct_paged_kv=True"
)


def test_an_unnamed_realization_joins_the_only_request_it_can_be() -> None:
    one = summarize("sglang", [MATCH.format("r1", 512), MATCH.format("r2", 600), REALIZED.format(512)])
    assert [event["request_id"] for event in listed(one, "materialized")] == ["r1"]
    assert one.materialized_semantic_kv_reuse is True


@pytest.mark.parametrize(
    "lines",
    [
        [MATCH.format("r1", 512), MATCH.format("r2", 512), REALIZED.format(512)],
        [MATCH.format("r1", 512), MATCH.replace("rid={} ", "").format(512), REALIZED.format(512)],
        [MATCH.format("r1", 512), REALIZED.format(500)],
        [REALIZED.format(512), MATCH.format("r1", 512)],
        [MATCH.format("r1", 512), "[FUZZY] Realized 512 fuzzy tokens (2 segments)"],
    ],
)
def test_an_ambiguous_realization_confirms_no_request(lines: list[str]) -> None:
    summary = summarize("sglang", lines)
    assert summary.materialization_events == 1
    assert summary.materialized_semantic_kv_reuse is False


def test_a_match_is_used_up_by_its_realization() -> None:
    summary = summarize("sglang", [MATCH.format("r1", 512), REALIZED.format(512), REALIZED.format(512)])
    assert [event.get("request_id") for event in listed(summary, "materialized")] == ["r1", None]


def test_phases_replace_realized_lines_in_any_order() -> None:
    phases = [PHASE.format("r1", 600, 600), PHASE.format("r1", 64, 64)]
    total = "[FUZZY] Realized 664 fuzzy tokens (2 segments)"
    for lines in ([*phases, total], [total, *phases], [MATCH.format("r9", 664), REALIZED.format(664), *phases]):
        summary = summarize("sglang", lines)
        assert (summary.materialization_events, summary.materialized_tokens, summary.materialized_units) == (2, 664, 2)
        assert {event["request_id"] for event in listed(summary, "materialized")} == {"r1"}


def test_a_hit_that_was_none_is_none() -> None:
    for line in ("[FUZZY] semantic not matched score=0.2 tokens=70", "[FUZZY] fuzzy no hit similarity=0.2 tokens=70"):
        assert summarize("sglang", [line]).semantic_hits == 0
    assert summarize("sglang", ["semantic cache hit rid=a score=0.9 reused_tokens=70"]).semantic_hits == 1


def test_a_phase_cannot_fill_more_than_its_target() -> None:
    summary = summarize("sglang", [PHASE.format("r1", 601, 600)])
    assert summary.materialization_events == 0
    assert read_counts(summary)[3] == 1


# -- TensorRT-LLM and LMCache ----------------------------------------------------------------------------------------


def test_trtllm_joins_by_request_and_needs_one() -> None:
    def audit(hit: dict[str, Any], load: dict[str, Any]) -> EngineSummary:
        lookup = {"event": "lookup", "found": True, **hit}
        loaded = {"event": "materialized", "materialized": 4, **load}
        return summarize("trtllm", map(json.dumps, (lookup, loaded)))

    assert audit({"request_id": 7}, {"request_id": 7}).materialized_semantic_kv_reuse is True
    assert audit({"request_id": 7}, {"request_id": "7"}).materialized_semantic_kv_reuse is True
    assert audit({"request_id": 7}, {"request_id": 8}).materialized_semantic_kv_reuse is False
    assert audit({}, {}).materialized_semantic_kv_reuse is False
    assert audit({}, {}).materialized_units == 4


def test_lmcache_is_never_semantic_even_beside_a_semantic_hit(tmp_path: Path) -> None:
    lmcache = golden_summary("lmcache.log")
    assert (lmcache.semantic_hits, lmcache.materialized_semantic_kv_reuse) == (0, False)
    assert lmcache.materialized_tokens == 1280 + 201 + 768 + 24
    named = summarize(
        "lmcache", ["LMCache INFO: [req_id=a] Retrieved 64 out of 64 required tokens (from 64 total tokens)"]
    )
    paths = []
    for summary in (named, summarize("vllm", [HIT.format("a")])):
        paths.append(tmp_path / f"{summary.engine}.json")
        paths[-1].write_text(as_text(summary))
    assert read_engine_summaries(paths).joined_requests == ()


def test_an_intent_to_store_counts_only_where_stores_are_not_logged() -> None:
    intent, done = "Storing KV cache for 256 out of 256 tokens for request a", "Stored 256 out of total 256 tokens."
    assert summarize("lmcache", [intent]).donor_registrations == 1
    assert summarize("lmcache", [intent, done]).donor_registrations == 1


# -- errors, limits and hostile input --------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ENGINES)
def test_errors_and_runtime_warnings_are_never_silent(engine: str) -> None:
    lines = ["ERROR 11-15 [core.py:1] died", "Traceback (most recent call last):", "Error in lower case is a word"]
    warnings = [
        "[E:onnxruntime:, x.cc:5]",
        "Non-zero status code returned",
        "Shape mismatch attempting to re-use buffer",
    ]
    summary = summarize(engine, [*lines, *warnings])
    assert list(summary.errors) == lines[:2]
    assert list(summary.runtime_warnings) == warnings


def test_what_is_not_kept_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MAX_EVIDENCE", "MAX_OTHER_EVENTS", "MAX_KEPT_LINES", "MAX_REASONS"):
        monkeypatch.setattr(tally_module, name, 3)
    lines = [LOADED.format(f"r{i}", 10) for i in range(5)]
    lines += [f"SemBlend declined request_id=r{i} reason=why{i}" for i in range(5)]
    lines += ["ERROR"] * 5
    summary = summarize("vllm", lines)
    assert (summary.materialization_events, summary.materialized_tokens) == (5, 50)
    assert len(listed(summary, "materialized")) == len(listed(summary, "declined")) == len(summary.errors) == 3
    assert (summary.events[0]["events_left_out"], summary.events[0]["errors_left_out"]) == (4, 2)
    assert sum(summary.rejection_reasons.values()) == 5
    assert len(summary.rejection_reasons) == 4


def test_missing_events_of_a_numbered_stream_are_reported() -> None:
    lines = [encode_line(EventLine(Declined("a", "stale"), "vllm", n, 1.0)) for n in (0, 1, 4, 0, 1)]
    assert summarize("semblend", lines[:2]).runtime_warnings == ()
    assert summarize("semblend", lines).runtime_warnings[0].startswith("2 events are missing")


@pytest.mark.parametrize(
    "change",
    [{"reused_tokens": -1}, {"load_ms": float("1e400")}, {"timestamp_ms": 10**400}, {"runs": True}, {"unknown": 1}],
)
def test_impossible_events_are_damage(change: dict[str, Any]) -> None:
    record = json.loads(encode_line(EventLine(Materialized("a", ("d",), 5, 0, 1, 1.0), "vllm", 0, 1.0)))
    text = json.dumps({**record, **change}).replace("Infinity", "1e400")
    assert read_counts(summarize("semblend", [text])) == (1, 0, 0, 1)


HOSTILE = [
    "a" * 200_000,
    "a=" * 100_000,
    "=" * 200_000,
    "SemBlend materialized " + "request_id=" * 20_000,
    "SemBlend materialized request_id=" + "a" * 200_000,
    "(" * 200_000,
    "[" * 100_000 + "]" * 100_000,
    "(a) " * 50_000,
    "1 " * 100_000,
    "[FUZZY RADIX] segmented prefill realized donor phase: " + "target=[" * 25_000,
    "[FUZZY] semantic hit similarity=1 " + "hit " * 50_000,
    "semantic fuzzy " * 15_000,
    "Retrieved 5 " + "out of " * 30_000,
    "Reqid: " * 30_000 + "LMCache hit tokens: token",
    "LMCache hit tokens: " * 10_000,
    '{"event": ' * 20_000,
    "[" * 100_000,
    "{" + '"a":' * 50_000,
    "\x1b[" * 100_000,
    "\rx: 0%|" * 20_000,
    "INFO " * 40_000,
    "9" * 200_000,
    '{"event":"materialized","materialized":' + "9" * 100_000 + "}",
]


@pytest.mark.parametrize("engine", ENGINES)
def test_no_long_line_is_slow(engine: str) -> None:
    """Linear time: a line of 200,000 characters costs milliseconds. A quadratic search would take minutes."""
    started = time.process_time()
    summary = summarize(engine, HOSTILE)
    assert time.process_time() - started < 5.0
    assert read_counts(summary)[0] == len(HOSTILE)


def test_an_endless_line_is_read_in_pieces() -> None:
    stream = io.BytesIO(b"x" * (3 * MAX_LINE_BYTES) + b"ERROR\nshort\n" + b"\xff\xfe\n" + b"no end")
    lines = list(lines_of(stream))
    assert [len(line) for line in lines] == [MAX_LINE_BYTES, 6, 3, 6]


def check_sane(engine: str, lines: Iterable[str]) -> None:
    """What holds of every log: all lines counted, no reuse without its two sources, and JSON that can be written."""
    kept = list(lines)
    summary = summarize(engine, kept)
    total, understood, other, damaged = read_counts(summary)
    assert total == len(kept) == understood + other + damaged
    hits = {event.get("request_id") for event in listed(summary, "semantic_hit")} - {None}
    loads = {event.get("request_id") for event in listed(summary, "materialized")} - {None}
    assert summary.materialized_semantic_kv_reuse == bool(hits & loads)
    assert (summary.materialized_tokens or 0) >= 0
    json.dumps(summary.to_json(), allow_nan=False)


WORDS = st.sampled_from(
    [
        "SemBlend materialized",
        "SemBlend semantic lookup hit",
        "request_id=",
        "request_id=a",
        "rid=a",
        "tokens=5",
        "tokens=",
        "donor_tokens=5",
        "[FUZZY]",
        "[FUZZY RADIX]",
        "Realized",
        "5",
        "fuzzy tokens",
        "Fuzzy match success:",
        "cached=5",
        "target=[0,5)",
        "semantic hit similarity=1",
        "segmented prefill realized donor phase:",
        "Retrieved 5 tokens",
        "Stored 5 tokens",
        "Reqid: a,",
        "LMCache hit tokens: 5",
        "ERROR",
        '{"event":',
        '"materialized"',
        '"request_id":1',
        "}",
        "[",
        "\x00",
        "\x1b[0m",
        "\r",
        "(x)",
        "INFO",
    ]
)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(ENGINES), st.lists(st.one_of(st.text(max_size=200), st.lists(WORDS, max_size=9).map(" ".join))))
def test_any_text_is_survived(engine: str, lines: list[str]) -> None:
    check_sane(engine, lines)


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(ENGINES), st.binary(max_size=2000))
def test_any_bytes_are_survived(engine: str, content: bytes) -> None:
    check_sane(engine, lines_of(io.BytesIO(content)))


GOLDEN_BYTES = {name: (GOLDEN / name).read_bytes() for name in LOGS}


@settings(max_examples=250, deadline=None)
@given(st.data())
def test_mutated_golden_logs_are_survived(data: st.DataObject) -> None:
    """Bytes replaced, cut out, doubled: a log as a full disk, two writers or a wrong encoding leave it."""
    name = data.draw(st.sampled_from(sorted(LOGS)))
    content = bytearray(GOLDEN_BYTES[name])
    for _ in range(data.draw(st.integers(1, 8))):
        at = data.draw(st.integers(0, len(content)))
        until = at + data.draw(st.integers(0, 60))
        content[at:until] = data.draw(
            st.one_of(st.just(b""), st.binary(max_size=20), st.just(bytes(content[at:until]) * 2))
        )
    for engine in (LOGS[name], data.draw(st.sampled_from(ENGINES))):
        check_sane(engine, lines_of(io.BytesIO(bytes(content))))


def test_order_of_requests_does_not_matter_to_the_join() -> None:
    lines = golden_lines("vllm.log")
    forwards, backwards = summarize("vllm", lines), summarize("vllm", reversed(lines))
    for key in ("semantic_hits", "materialized_tokens", "materialized_semantic_kv_reuse", "rejection_reasons"):
        assert getattr(forwards, key) == getattr(backwards, key)


# -- the registry ----------------------------------------------------------------------------------------------------


def test_the_five_dialects_are_there_and_a_wrong_name_is_reported() -> None:
    assert set(ENGINES) <= set(DIALECTS.names())
    with pytest.raises(ConfigurationError, match="Did you mean 'sglang'"):
        summarize("sglnag", [])


THIRD_PARTY = """
from sembench.engine_events.dialects import LineResult
class Mine:
    def begin(self, tally): tally.measures("semantic_hits")
    def read_line(self, line, tally):
        if not line.startswith("mine "):
            return LineResult.OTHER
        tally.hit(line.split()[1])
        return LineResult.UNDERSTOOD
    def finish(self, tally): pass
"""


def test_a_third_partys_dialect_comes_in_by_its_entry_point(tmp_path: Path) -> None:
    package = tmp_path / "site"
    (package / "mine-1.0.dist-info").mkdir(parents=True)
    (package / "mine_dialect.py").write_text(THIRD_PARTY)
    (package / "mine-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    points = "[sembench.engine_dialects]\nmine = mine_dialect:Mine\n"
    (package / "mine-1.0.dist-info" / "entry_points.txt").write_text(points)
    (tmp_path / "a.log").write_text("mine r1\nmine r2\nother\n")
    done = sembench(
        *("summarize-engine-events", "--engine", "mine", "--input", tmp_path / "a.log"),
        more_path=package,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["semantic_hits"] == 2


# -- as a process ----------------------------------------------------------------------------------------------------


def sembench(*arguments: str | Path, more_path: Path | None = None, **environment: str) -> CompletedProcess[str]:
    paths = os.pathsep.join(map(str, filter(None, (SRC, more_path))))
    return subprocess.run(
        [sys.executable, "-m", "sembench", *map(str, arguments)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": paths, **environment},
        check=False,
    )


def test_exit_codes_and_one_line_that_says_what_to_do(tmp_path: Path) -> None:
    collect = ["collect-k8s-engine-events", "--engine", "vllm", "--namespace", "n"]
    collect += ["--output-log", str(tmp_path / "l"), "--output-summary", str(tmp_path / "s")]
    missing = sembench(*collect, "--pod", "p", PATH=str(tmp_path))
    assert (missing.returncode, missing.stderr.count("\n")) == (3, 1)
    assert "kubectl is not on the PATH" in missing.stderr
    injected = sembench(*collect, "--pod=--kubeconfig=x")
    assert (injected.returncode, injected.stderr.count("\n")) == (2, 1)
    assert "not a pod's name" in injected.stderr
    unknown = sembench("summarize-engine-events", "--engine", "nobody", "--input", GOLDEN / "vllm.log")
    assert (unknown.returncode, "invalid choice: 'nobody'" in unknown.stderr) == (2, True)
    assert sembench("summarize-engine-events", "--engine", "vllm", "--input", tmp_path / "none").returncode == 2
    assert list(tmp_path.iterdir()) == []


if __name__ == "__main__":
    for log in LOGS:
        expected_file(log).write_text(as_text(golden_summary(log)), encoding="utf-8")
