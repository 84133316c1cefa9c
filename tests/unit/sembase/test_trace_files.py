"""Records in files: every format gives back what was saved, finds itself by its first bytes, and names bad lines."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sembase.errors import ConfigurationError, ContractError
from sembase.labels import LABELS
from sembase.trace import build, files
from sembase.trace.build import build_trace, in_time_order
from sembase.trace.columns import BlockTrace
from sembase.trace.formats import FORMATS
from sembase.trace.load import load_trace, read_records, sniff_format
from sembase.trace.record import TraceBlock, TraceRecord
from sembase.trace.save import save_records
from sembase.trace.stream import stream_trace

UNDER_LOAD = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
NAMES = ["trace.jsonl", "trace.jsonl.gz", "trace.json", "trace.json.gz", "trace.csv", "trace.csv.gz", "trace.parquet"]
# Surrogates cannot be written as UTF-8; a lone carriage return is a line end to every CSV reader.
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00\r"), min_size=1, max_size=12)
numbers = st.floats(0, 1e9, allow_nan=False)
counts = st.integers(0, 2**31 - 1)
metadata = st.dictionaries(texts, st.one_of(texts, st.integers(-5, 5), st.booleans()), max_size=2)


@st.composite
def blocks(draw: st.DrawFn) -> TraceBlock:
    return TraceBlock(
        semantic_type=draw(st.sampled_from(LABELS)),
        token_count=draw(st.integers(1, 2**20)),
        content_hash=draw(texts),
        text=draw(st.none() | texts),
        block_id=draw(st.none() | texts),
        position=draw(st.none() | counts),
        metadata=draw(metadata),
    )


@st.composite
def traces(draw: st.DrawFn) -> list[TraceRecord]:
    """At least one record, in order of time, under different ids (rows of a CSV belong together by their id)."""
    ids = draw(st.lists(texts, min_size=1, max_size=4, unique=True))
    times = sorted(draw(st.lists(numbers, min_size=len(ids), max_size=len(ids))))
    return [
        TraceRecord(
            request_id=request_id,
            timestamp_ms=at_ms,
            blocks=tuple(draw(st.lists(blocks(), min_size=1, max_size=3))),
            session_id=draw(st.none() | texts),
            tenant_id=draw(st.none() | texts),
            model_name=draw(st.none() | texts),
            output_tokens=draw(st.none() | counts),
            observed_ttft_ms=draw(st.none() | numbers),
            observed_total_latency_ms=draw(st.none() | numbers),
            observed_prefix_hit_tokens=draw(st.none() | counts),
            observed_prefill_tokens=draw(st.none() | counts),
            metadata=draw(metadata),
        )
        for request_id, at_ms in zip(ids, times, strict=True)
    ]


@pytest.mark.parametrize("name", NAMES)
@given(saved=traces())
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
def test_records_come_back_as_they_were(tmp_path: Path, name: str, saved: list[TraceRecord]) -> None:
    path = tmp_path / name
    assert save_records(saved, path) == len(saved)
    assert list(read_records(path)) == saved


def some_records(count: int = 10) -> list[TraceRecord]:
    shared = TraceBlock("system", 10, content_hash="s")
    return [
        TraceRecord(
            f"r{number}",
            number * 10.0,
            (
                shared,
                TraceBlock("retrieved_context", 20, text=f"document {number % 3}"),
                TraceBlock("user", 5, block_id=f"u{number}"),
            ),
            session_id=f"s{number % 2}",
            tenant_id="a" if number % 5 else "b",
            observed_ttft_ms=float(number),
        )
        for number in range(count)
    ]


def same(left: BlockTrace, right: BlockTrace) -> bool:
    assert left.parent is not None
    assert right.parent is not None
    columns = ("offsets", "nodes", "parent", "content", "node_tokens", "node_label", "arrival_ms", "session", "tenant")
    return all(np.array_equal(getattr(left, name), getattr(right, name)) for name in columns)


@pytest.mark.parametrize("name", NAMES)
def test_every_format_loads_to_the_same_columns(tmp_path: Path, name: str) -> None:
    records = some_records()
    save_records(records, tmp_path / name)
    trace = load_trace(tmp_path / name)
    trace.check()
    assert trace.name == "trace"
    assert same(trace, build_trace(records, "trace"))
    assert list(trace.observed_ttft_ms) == [float(number) for number in range(10)]
    assert np.isnan(trace.observed_hit_tokens).all()


def test_a_node_is_a_tenants_content_behind_its_prefix_whatever_its_label() -> None:
    def record(tenant: str | None, *parts: tuple[str, str]) -> TraceRecord:
        return TraceRecord("r", 0, tuple(TraceBlock(label, 4, text=text) for label, text in parts), tenant_id=tenant)

    trace = build_trace(
        [
            record("a", ("system", "x"), ("user", "y")),
            record("a", ("other", "x"), ("code", "y")),  # labels are not part of what a block holds
            record("b", ("system", "x"), ("user", "y")),  # another tenant shares nothing
            record(None, ("system", "x"), ("user", "y")),  # nor does the one without a name
            record("a", ("user", "y"), ("system", "x")),  # same contents, other prefixes
        ],
        "t",
    )
    assert trace.nodes.tolist() == [0, 1, 0, 1, 2, 3, 4, 5, 6, 7]
    assert trace.content.tolist() == [0, 1, 2, 3, 4, 5, 1, 0]
    assert trace.tenant.tolist() == [0, 0, 1, -1, 0]


def test_equal_text_and_its_digest_are_one_content_but_other_lengths_are_not() -> None:
    import hashlib

    digest = hashlib.sha256(b"x").hexdigest()
    pieces = (
        TraceBlock("user", 4, text="x"),
        TraceBlock("user", 4, content_hash=digest),
        TraceBlock("user", 5, text="x"),
    )
    trace = build_trace([TraceRecord("r", 0, (piece,)) for piece in pieces], "t")
    assert trace.nodes.tolist() == [0, 0, 1]


@pytest.mark.parametrize("name", ["trace.jsonl", "trace.parquet", "trace.csv.gz"])
def test_a_stream_of_chunks_is_the_trace(tmp_path: Path, name: str) -> None:
    records = some_records(25)
    save_records(records, tmp_path / name)
    whole = build_trace(records, "trace")
    chunks = list(stream_trace(tmp_path / name, chunk_requests=7))
    assert [chunk.request_count for chunk in chunks] == [7, 7, 7, 4]
    assert np.array_equal(np.concatenate([chunk.nodes for chunk in chunks]), whole.nodes)
    assert np.array_equal(np.concatenate([chunk.session for chunk in chunks]), whole.session)
    assert np.array_equal(chunks[-1].content, whole.content)
    for chunk in chunks:
        chunk.check()
        assert np.array_equal(chunk.content, whole.content[: chunk.node_count])


def test_reading_records_holds_one_of_them(tmp_path: Path) -> None:
    """A bad line at the end is met only when the reader gets there."""
    path = tmp_path / "trace.jsonl"
    save_records(some_records(3), path)
    with path.open("a") as stream:
        stream.write("{broken\n")
    reader = read_records(path)
    assert [next(reader).request_id for _ in range(3)] == ["r0", "r1", "r2"]
    with pytest.raises(ContractError, match=r"trace\.jsonl line 4: not JSON"):
        next(reader)


def test_damaged_lines_are_left_out_and_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The last line of a live log is often cut; a few others may be broken, more are an error."""
    path = tmp_path / "t.jsonl"
    good, cut = lines(GOOD), lines(GOOD)[:40]
    path.write_bytes(good * 3 + cut)
    assert len(list(read_records(path))) == 3
    assert "t.jsonl: 1 of 4 lines left out: t.jsonl line 4: not JSON" in capsys.readouterr().err
    path.write_bytes(good * 200 + b"\xff\n" + b"{broken\n" + good * 200 + cut)
    assert len(list(read_records(path))) == 400
    assert "t.jsonl: 3 of 403 lines left out: t.jsonl line 201: not UTF-8 text" in capsys.readouterr().err
    path.write_bytes(good * 50 + b"{broken\n" * 2 + good * 50)
    with pytest.raises(ContractError, match=r"t\.jsonl line 51: not JSON: .*; 2 of 102 lines are damaged"):
        list(read_records(path))
    path.write_bytes(cut)
    with pytest.raises(ContractError, match=r"t\.jsonl line 1: not JSON"):
        list(read_records(path, "trace_v1"))
    path.write_bytes(good * 3)
    assert len(list(read_records(path))) == 3
    assert capsys.readouterr().err == ""


def test_records_written_as_they_finished_are_put_in_order_of_arrival(monkeypatch: pytest.MonkeyPatch) -> None:
    records = some_records(6)
    mixed = [records[number] for number in (1, 0, 3, 2, 5, 4)]
    assert list(in_time_order(mixed, "t")) == records
    monkeypatch.setattr(build, "REORDERED_RECORDS", 2)
    assert list(in_time_order(mixed, "t")) == records
    with pytest.raises(ContractError, match=r"request 5 \(r0\) arrived before .* sort the trace"):
        list(in_time_order([*records[1:], records[0]], "t"))


def lines(*values: Any) -> bytes:
    return b"".join(json.dumps(value).encode() + b"\n" for value in values)


GOOD = {"request_id": "r", "timestamp_ms": 0, "blocks": [{"semantic_type": "user", "token_count": 1, "text": "x"}]}


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.jsonl", lines(GOOD, {**GOOD, "color": 1}), r"t\.jsonl line 2: unknown field color"),
        ("t.jsonl", lines(GOOD) + b"\n\n" + b"[1]\n", r"t\.jsonl line 4: expected a JSON object"),
        ("t.jsonl", lines(GOOD) + b'{"request_id": "\xff"}\n', r"t\.jsonl line 2: not UTF-8"),
        ("t.jsonl", lines(GOOD) + b'{"request_id": ' + b"9" * 5000 + b"}\n", r"t\.jsonl line 2: "),
        ("t.json", json.dumps({"requests": [GOOD, 3]}).encode(), r"t\.json request 1: expected a JSON object"),
        ("t.json", json.dumps({"requests": [GOOD], "extra": 1}).encode(), r"t\.json: not a semantic_kv\.trace\.v1"),
        ("t.csv", b"request_id,token_count\nr,1\n", r"t\.csv line 1: the header lacks semantic_type"),
        ("t.csv", b"request_id,semantic_type,token_count,x\n", r"unknown columns x"),
        (
            "t.csv",
            b"request_id,semantic_type,token_count,text\nr,user,1,a\nr,user,one,a\n",
            r"line 3: column token_count",
        ),
        ("t.csv", b"request_id,semantic_type,token_count,text\nr,user,1\n", r"line 2: 3 values for 4 columns"),
        ("t.csv", b"request_id,semantic_type,token_count,text\n,user,1,a\n", r"line 2: 'request_id' is missing"),
        ("t.csv", b"request_id,semantic_type,token_count,text\n", r"t: contains no requests"),
    ],
)
def test_bad_records_say_where(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ContractError, match=message):
        load_trace(tmp_path / name)


def test_a_csv_of_the_three_required_columns_and_a_text_is_enough(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(b"request_id,semantic_type,token_count,text\na,system,3,x\na,user,2,y\nb,system,3,x\n")
    first, second = read_records(path)
    assert [block.text for block in first.blocks] == ["x", "y"]
    assert first.timestamp_ms < second.timestamp_ms
    assert load_trace(path).nodes.tolist() == [0, 1, 0]


def test_what_cannot_be_read_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read: No such file"):
        load_trace(tmp_path / "absent.jsonl")
    (tmp_path / "x").write_bytes(b"nothing we know")
    with pytest.raises(ConfigurationError, match="choose one with --format: agent_text, azure"):
        load_trace(tmp_path / "x")
    with pytest.raises(ConfigurationError, match=r"unknown trace format 'moncake'.*Did you mean 'mooncake'"):
        load_trace(tmp_path / "x", "moncake")
    with pytest.raises(ConfigurationError, match=r"use \.jsonl, \.json, \.csv, \.parquet"):
        save_records(some_records(), tmp_path / "t.xml")


def test_a_damaged_gzip_is_named(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl.gz"
    path.write_bytes(gzip.compress(lines(*[GOOD] * 500))[:-20])
    with pytest.raises(ContractError, match=r"t\.jsonl\.gz: damaged gzip"):
        load_trace(path, "trace_v1")


def zstd(content: bytes) -> bytes:
    import pyarrow

    return bytes(pyarrow.Codec("zstd").compress(content, asbytes=True))


@pytest.mark.parametrize("pack", [gzip.compress, zstd])
def test_a_file_that_unpacks_to_far_more_than_any_log_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pack: Callable[[bytes], bytes]
) -> None:
    path, plain = tmp_path / "t.jsonl.packed", tmp_path / "t.jsonl"
    plain.write_bytes(lines(*[GOOD] * 40) + b" \n" * (16 << 20))
    path.write_bytes(pack(plain.read_bytes()))
    assert len(list(read_records(path))) == 40, "it is small"
    monkeypatch.setattr(files, "_ANY_RATIO_BYTES", 1 << 20)
    with pytest.raises(ContractError, match=r"t\.jsonl\.packed: unpacks to more than .* unpack it first"):
        list(read_records(path))
    assert len(list(read_records(plain))) == 40


@pytest.mark.parametrize("pack", [gzip.compress, zstd])
def test_a_log_of_equal_prompts_is_no_bomb(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pack: Callable[[bytes], bytes]
) -> None:
    """A long system prompt and the same short question again and again pack better than any other honest log."""
    monkeypatch.setattr(files, "_ANY_RATIO_BYTES", 1 << 20)
    draws = random.Random(1)
    system = " ".join(f"{draws.randrange(10**5)}" for _ in range(1500))
    messages = [{"role": "system", "content": system}, {"role": "user", "content": "ping"}]
    path = tmp_path / "t.jsonl.packed"
    content = lines(*({"model": "m", "timestamp": 1.7e9 + n, "messages": messages} for n in range(400)))
    path.write_bytes(pack(content))
    assert len(content) > 60 * path.stat().st_size
    assert len(list(read_records(path, "openai"))) == 400


def test_records_wait_for_earlier_ones_in_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts count as well as records: few very long prompts are not held all."""
    monkeypatch.setattr(build, "REORDERED_CHARACTERS", 1000)
    taken = []

    def long_prompts() -> Iterator[TraceRecord]:
        for number in range(50):
            taken.append(number)
            yield TraceRecord(f"r{number}", float(number), (TraceBlock("user", 1, text="x" * 300),))

    for number, record in enumerate(in_time_order(long_prompts(), "t")):
        assert record.request_id == f"r{number}"
        assert len(taken) <= number + 4


def test_a_failed_save_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    save_records(some_records(2), path)
    before = path.read_bytes()

    def failing() -> Iterator[TraceRecord]:
        yield some_records(1)[0]
        raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError, match="in the middle"):
        save_records(failing(), path)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["t.jsonl"]


def test_options_of_other_formats_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    save_records(some_records(2), path)
    with pytest.raises(ConfigurationError, match="'trace_v1' has no option 'seed'"):
        load_trace(path, options={"seed": 1})


def test_every_format_knows_itself_only(tmp_path: Path) -> None:
    """The first bytes of each published kind of file lead to its own loader."""
    heads = {
        "mooncake": b'{"timestamp": 0, "input_length": 6758, "output_length": 500, "hash_ids": [0, 1]}\n',
        "claude_code": b'{"id":"trace_0001","models":["m"],"block_size":64,"requests":[{"t":0.0}]}',
        "azure": b"TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,4808,10\n",
        "agent_text": b'{"timestamp": 1760428436442742, "input": "<pr_description>", "output": ""}\n',
        "trace_v1": lines(GOOD),
        "json": b'{"trace_id": "x", "requests": []}',
        "csv": b"request_id,semantic_type,token_count\n",
        "parquet": b"PAR1\x15\x04",
        "openai": b'{"model": "m", "messages": [{"role": "user", "content": "hello"}]}\n',
        "litellm": b'{"id": "chatcmpl-1", "trace_id": "t", "call_type": "completion", "startTime": 1794884311.3}\n',
        "langfuse": b'{"id": "g", "traceId": "t", "type": "GENERATION", "startTime": "2026-01-02T03:04:05Z"}\n',
        "otel_genai": b'{"name": "chat m", "attributes": {"gen_ai.request.model": "m"}}\n',
        "vllm_log": b"(APIServer pid=1) INFO 11-17 03:02:34 [api_server.py:1] vLLM API server version 0.32\n",
        "sglang_log": b"[2026-11-17 03:02:30] server_args=ServerArgs()\n",
        "claude_log": b'{"parentUuid": null, "sessionId": "s", "type": "user", "message": {}, "uuid": "u"}\n',
    }
    assert set(heads) == set(FORMATS.names())
    for name, head in heads.items():
        path = tmp_path / name
        path.write_bytes(head)
        assert sniff_format(path) == name
        path.write_bytes(gzip.compress(head))
        assert sniff_format(path) == name
