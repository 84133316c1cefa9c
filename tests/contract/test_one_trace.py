"""What the proxy records is read by every command that names a trace: a rotated folder, a glob, packed files."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from semantic_kv.cli.main import main as semantic_kv
from sembase.trace.load import load_trace, read_records
from sembench.cli.main import main as sembench
from sembench.load.prompts import DEFAULT_MAX_TOKENS, read_trace
from sembench.manifest import read_manifest
from semgate.prompt.digest import Digests
from semgate.proxy.exchange import Exchange
from semgate.proxy.record import RecordMaker
from semgate.proxy.writer import start_trace_writer, trace_files

CHATS = 24
WORDS = ("harbour", "ledger", "signal", "bridge", "ferry", "archive", "garden", "letter", "engine", "licence")
START_MS = 1_700_000_000_000.0


def record(folder: Path, *, redact_text: bool) -> Path:
    """Chats over shuffled passages, written by the proxy's own writer into several rotated files."""
    draws = random.Random(4)
    passages = [" ".join(draws.choices(WORDS, k=120)) for _ in range(6)]
    maker = RecordMaker(Digests(b"k" * 32), redact_text=redact_text)
    files = trace_files(folder, rotate_bytes=4_000, rotate_seconds=1e9)
    writer = start_trace_writer(maker.record_of, files, queue_records=1000)
    for number in range(CHATS):
        chosen = draws.sample(passages, 3)
        messages = [
            {"role": "system", "content": "Answer from the passages."},
            {"role": "user", "content": "\n\n".join([*chosen, f"Question {number}: what is carried?"])},
        ]
        body = json.dumps({"model": "m", "messages": messages}).encode()
        exchange = Exchange("/v1/chat/completions", (), body, "t", START_MS + 500.0 * number, 0.0)
        exchange.outcome = "ok"
        assert writer.put(exchange)
    writer.close()
    return folder


@pytest.fixture(params=["redacted", "with text"])
def folder(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    made = record(tmp_path / "rotated", redact_text=request.param == "redacted")
    assert len(list(made.iterdir())) > 2
    return made


@pytest.fixture
def with_text(tmp_path: Path) -> Path:
    return record(tmp_path / "rotated", redact_text=False)


def pack(folder: Path) -> Path:
    for path in folder.glob("*.jsonl"):
        path.with_name(path.name + ".gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    return folder


NAMES: dict[str, Callable[[Path], Path]] = {
    "folder": lambda folder: folder,
    "glob": lambda folder: folder / "trace-*.jsonl",
    "packed": pack,
}


@pytest.mark.parametrize("named", NAMES)
def test_a_folder_or_glob_of_rotated_files_is_one_trace(folder: Path, named: str) -> None:
    trace = NAMES[named](folder)
    assert [each.timestamp_ms for each in read_records(trace)] == [START_MS + 500.0 * n for n in range(CHATS)]
    assert load_trace(trace).request_count == CHATS


def test_the_simulator_reads_it(folder: Path, tmp_path: Path) -> None:
    common = ["--trace", str(folder), "--output-dir", str(tmp_path / "out"), "--quiet"]
    assert (
        semantic_kv(["replay", *common, "--cache-token-budget", "2k", "--models", "prefix_tree", "--policies", "lru"])
        == 0
    )
    assert semantic_kv(["mrc", *common, "--capacities", "20", "--no-bounds"]) == 0


def test_calibrate_reads_it_and_names_what_is_missing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert semantic_kv(["calibrate", "--trace", str(folder / "*.jsonl"), "--output-dir", str(folder.parent / "c")]) == 2
    assert "folder" not in (message := capsys.readouterr().err)
    assert "ttft" in message.lower()


def test_build_reads_it(with_text: Path, tmp_path: Path) -> None:
    manifest = tmp_path / "m.jsonl"
    build = ["build", "--from-trace", str(with_text), "--output", str(manifest)]
    assert sembench([*build, "--transforms", "stream"]) == 0
    items = read_manifest(manifest)
    assert len(items) == CHATS
    assert items[3].is_stream
    assert items[3].recipient_prompt.startswith("Answer from the passages.")
    assert "Question 3:" in items[3].recipient_prompt
    offline = ["run-offline", "--manifest", str(manifest), "--output", str(tmp_path / "r.json")]
    assert sembench(offline) == 0


def test_build_pairs_each_request_with_those_it_repeats(with_text: Path, tmp_path: Path) -> None:
    manifest = tmp_path / "m.jsonl"
    assert sembench(["build", "--from-trace", str(with_text), "--output", str(manifest)]) == 0
    items = read_manifest(manifest)
    prompts = [each.prompt_text() for each in read_records(with_text)]
    assert [item.recipient_prompt for item in items] == prompts
    assert [item.transform for item in items[-5:]] == ["recorded"] * 5
    assert items[0].negative_control, "nothing came before the first request"
    for number, item in enumerate(items):
        assert item.negative_control or {donor.text for donor in item.donor_prompts} <= set(prompts[:number])
    assert sembench(["audit-manifest", "--manifest", str(manifest)]) == 0
    assert sembench(["run-offline", "--manifest", str(manifest), "--output", str(tmp_path / "r.json")]) == 0


def test_build_says_that_a_redacted_trace_has_no_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    redacted = record(tmp_path / "redacted", redact_text=True)
    assert sembench(["build", "--from-trace", str(redacted), "--output", str(tmp_path / "m.jsonl")]) == 2
    assert "has no text" in (message := capsys.readouterr().err)
    assert "--redact-text false" in message
    assert not (tmp_path / "m.jsonl").exists()


def test_run_load_reads_its_times_and_lengths(folder: Path) -> None:
    entries = read_trace(folder)
    assert [entry.at_s for entry in entries] == [0.5 * n for n in range(CHATS)]
    assert {entry.output_tokens for entry in entries} == {DEFAULT_MAX_TOKENS}, "the replies had no usage"
