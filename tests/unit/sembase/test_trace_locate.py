"""The one resolver of named traces, and the merge of their files by time."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from sembase.errors import ConfigurationError, ContractError
from sembase.trace.build import in_time_order
from sembase.trace.load import load_trace, read_records
from sembase.trace.locate import existing_trace, trace_digest, trace_files
from sembase.trace.merge import merge_records
from sembase.trace.record import TraceBlock, TraceRecord, record_as_json
from sembase.trace.save import save_records
from sembase.trace.stream import stream_trace


def at(ms: float, name: str = "r") -> TraceRecord:
    return TraceRecord(f"{name}{ms:g}", ms, (TraceBlock("user", 3, content_hash=f"{name}{ms:g}"),))


def test_a_folder_is_its_trace_files_without_hidden_empty_and_other_ones(tmp_path: Path) -> None:
    for name in ("b.jsonl", "a.jsonl.gz", "sub/c.csv", "digest-secret", "notes.txt", ".d.jsonl", ".x/e.jsonl"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    (tmp_path / "just-opened.jsonl").touch()
    assert [each.relative_to(tmp_path).as_posix() for each in trace_files(tmp_path)] == [
        "a.jsonl.gz",
        "b.jsonl",
        "sub/c.csv",
    ]
    assert trace_files(tmp_path / "*.jsonl") == (tmp_path / "b.jsonl",)
    assert trace_files(tmp_path / "**" / "*.csv") == (tmp_path / "sub" / "c.csv",)
    assert trace_files(tmp_path / "notes.txt") == (tmp_path / "notes.txt",)


def test_a_file_whose_name_has_brackets_is_itself(tmp_path: Path) -> None:
    (tmp_path / "t[1].jsonl").write_text("x")
    assert trace_files(tmp_path / "t[1].jsonl") == (tmp_path / "t[1].jsonl",)


def test_a_trace_that_is_not_there_is_a_usage_error(tmp_path: Path) -> None:
    for named, message in ((tmp_path, "no trace files"), (tmp_path / "*.gz", "no file matches"), ("x", "no file")):
        with pytest.raises(argparse.ArgumentTypeError, match=message):
            existing_trace(str(named))
    with pytest.raises(ConfigurationError, match="no trace files"):
        load_trace(tmp_path)


def test_overlapping_files_are_merged_by_time_with_few_of_them_open() -> None:
    opened: list[int] = []
    max_open = 0

    def source(number: int) -> list[TraceRecord]:
        return [at(100.0 * number + 40.0 * step, f"s{number}-") for step in range(5)]

    def read(number: int):  # type: ignore[no-untyped-def]
        nonlocal max_open
        opened.append(number)
        max_open = max(max_open, len(opened))
        try:
            yield from source(number)
        finally:
            opened.remove(number)

    merged = list(merge_records([lambda number=number: read(number) for number in range(50)]))  # type: ignore[misc]
    assert merged == sorted((each for number in range(50) for each in source(number)), key=lambda r: r.timestamp_ms)
    assert max_open <= 4


def test_files_written_as_requests_finish_come_out_in_order(tmp_path: Path) -> None:
    save_records([at(20), at(0), at(10)], tmp_path / "a.jsonl")
    save_records([at(15), at(5)], tmp_path / "b.jsonl.gz")
    ordered = [each.timestamp_ms for each in in_time_order(read_records(tmp_path), "t")]
    assert ordered == [0, 5, 10, 15, 20]
    assert load_trace(tmp_path).arrival_ms.tolist() == ordered
    chunks = list(stream_trace(tmp_path, chunk_requests=2))
    assert [time for chunk in chunks for time in chunk.arrival_ms.tolist()] == ordered
    assert trace_digest(tmp_path) != trace_digest(tmp_path / "a.jsonl")


def test_files_of_several_formats_are_one_trace(tmp_path: Path) -> None:
    save_records([at(0)], tmp_path / "a.csv")
    save_records([at(1)], tmp_path / "b.json")
    assert load_trace(tmp_path).request_count == 2
    with pytest.raises(ConfigurationError, match="apply to a single file"):
        load_trace(tmp_path, options={"block_tokens": 4})


def test_zstandard_files_are_unpacked_and_damaged_ones_named(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="the Zstandard decoder")
    lines = "".join(json.dumps(record_as_json(at(float(n)))) + "\n" for n in range(2000)).encode()
    path = tmp_path / "t.jsonl.zst"
    with pyarrow.CompressedOutputStream(str(path), "zstd") as stream:
        stream.write(lines)
    assert len(list(read_records(path))) == 2000
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(ContractError, match=r"t\.jsonl\.zst: damaged Zstandard file"):
        list(read_records(path, "trace_v1"))


@pytest.mark.parametrize("named", ["any_position", "block", "prefix", "none"])
def test_a_record_says_which_reuse_it_shows(tmp_path: Path, named: str) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text(json.dumps({**record_as_json(at(0)), "visible_reuse": named}) + "\n")
    (found,) = read_records(path)
    assert found.shows == named
    assert at(0).shows == "block"
    path.write_text(json.dumps({**record_as_json(at(0)), "visible_reuse": "some"}) + "\n")
    with pytest.raises(ContractError, match="'visible_reuse' must be one of any_position"):
        list(read_records(path))
