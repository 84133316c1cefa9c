"""Whole live runs against a stand-in engine in a process of its own: pairs, evidence, breaks, lies and misuse."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.fakes.blending_server import running
from tests.waiting import wait_until

from sembench.cli.main import main
from sembench.manifest import WorkloadItem, read_manifest, write_manifest

SRC = Path(__file__).parents[3] / "src"
RESETS = ("--reset-url", "/reset_prefix_cache?reset_external=true", "--recipient-reset-url", "/reset_prefix_cache")


@pytest.fixture
def pairs_only(tmp_path: Path, fixture_items: Sequence[WorkloadItem]) -> Path:
    path = tmp_path / "pairs.jsonl"
    write_manifest(path, [item for item in fixture_items if item.source_id == "ferry" and not item.is_stream])
    return path


def gateway(manifest: Path, url: str, *flags: str | Path) -> list[str]:
    output = manifest.with_name("r.json")
    words = ["run-live-gateway", "--manifest", manifest, "--output", output, "--gateway-url", url, "--warm-up", "1"]
    return [*map(str, words), *map(str, flags)]


def result_of(manifest: Path) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(manifest.with_name("r.json").read_text())
    return result


def rows_of(manifest: Path) -> dict[str, dict[str, Any]]:
    return {row["transform"]: row for row in result_of(manifest)["requests"]}


def test_a_paired_run_joins_both_arms_with_the_engines_word(
    manifest: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    events, log = tmp_path / "events.jsonl", tmp_path / "ids.txt"
    flags = ("--paired", *RESETS, "--connector-audit", events, "--capture-logprobs", "5", "--check-propagation", "1")
    with running("--events", events, "--log", log, "--ms-per-token", "0.05", "--lazy") as url:
        assert main(gateway(manifest, url, *flags, "--metrics-url", "/metrics", "--settle-ms", "3000")) == 0
    shown = capsys.readouterr()
    rows, result = rows_of(manifest), result_of(manifest)
    items = read_manifest(manifest)
    assert [row["item_id"] for row in result["requests"]] == [item.item_id for item in items]
    repeat = rows["exact_repeat"]
    assert repeat["cold"]["request_id"] == f"cold.{repeat['item_id']}"
    assert repeat["warm"]["request_id"] == repeat["item_id"]
    assert repeat["cold"]["cached_tokens"] == 0
    assert repeat["cold"]["contaminated"] is False
    assert repeat["backend"]["boundary"] == 0, "the exact cache was emptied before the warm recipient"
    assert repeat["backend_confirmed_blocks"] == repeat["backend"]["reused_tokens"] // 16 > 0
    assert repeat["backend"]["propagated_tokens"] == 0
    assert repeat["pair"]["mean_kl"] > 0
    assert repeat["route_outcome"] == "semantic_placement"
    assert repeat["pair"]["agreed_tokens"] == repeat["warm"]["completion_tokens"]
    for name in ("negative_control", "cross_tenant"):
        assert rows[name]["backend_confirmed_blocks"] == 0
        assert rows[name]["pair"]["mean_kl"] == 0
    streamed = [row for row in result["requests"] if row["stream_id"] is not None]
    assert streamed
    assert all(row["cold"] is None and row["pair"] is None and row["warm"]["status"] == "ok" for row in streamed)
    paired = result["paired"]
    assert paired["clean_pairs"] == paired["pairs"] == len(items) - len(streamed)
    assert paired["hit_only_ttft_speedup_n"] < paired["pairs"]
    assert paired["propagation_contamination_rate"] == 0
    assert result["engine"] == {"name": "fake", "version": "1.2.3", "model": "fake-model"}
    assert result["config"]["isolation"] == "reset"
    moved = {counter["name"]: counter["delta"] for counter in result["run"]["server_metrics"]["counters"]}
    assert moved["fake_requests_total"] > 2 * len(items)
    looked_up = [event for event in map(json.loads, events.read_text().splitlines()) if event.get("reusable_tokens")]
    assert looked_up
    assert all(event["donor_ids"] for event in looked_up), "a plan names whose tokens it means"
    asked = log.read_text().split()
    assert asked.count(f"donor.{items[0].donor_prompts[0].donor_id}") == 1
    assert "hit-only" in shown.out
    assert "blended: every clean pair" in shown.out
    assert "negative controls (must be 1)" in shown.out
    assert f"{len(items)}/{len(items)}" in shown.err
    assert not manifest.with_name("r.json.partial.jsonl").exists()
    judged = ["assert-result-gates", "--result", str(manifest.with_name("r.json")), "--require-contamination-check"]
    assert main(judged) == 0


def test_a_reset_that_lies_shows_as_contamination(pairs_only: Path) -> None:
    with running("--deaf") as url:
        assert main(gateway(pairs_only, url, "--paired", *RESETS)) == 0
    paired = result_of(pairs_only)["paired"]
    assert paired["flush_contaminated_pairs"] > 0
    assert paired["clean_pairs"] == paired["pairs"] - paired["flush_contaminated_pairs"]


def test_blended_blocks_in_the_exact_cache_are_found(pairs_only: Path, tmp_path: Path) -> None:
    events = tmp_path / "events.jsonl"
    flags = ("--paired", *RESETS, "--connector-audit", events, "--check-propagation", "1", "--max-items", "4")
    with running("--events", events, "--leak") as url:
        assert main(gateway(pairs_only, url, *flags)) == 0
    found = [row["backend"]["propagated_tokens"] for row in result_of(pairs_only)["requests"] if row["backend"]]
    assert max(found) > 0
    assert main(["assert-result-gates", "--result", str(pairs_only.with_name("r.json"))]) == 1


def test_a_garbled_blend_shows_in_the_answer(pairs_only: Path, tmp_path: Path) -> None:
    flags = ("--paired", *RESETS, "--capture-logprobs", "--max-items", "1")
    with running("--garble", "--events", tmp_path / "e") as url:
        assert main(gateway(pairs_only, url, *flags)) == 0
    pair = rows_of(pairs_only)["exact_repeat"]["pair"]
    assert pair["agreed_tokens"] == 1
    assert pair["compared_positions"] == 2
    assert pair["worst_kl"] > 0.5


def test_without_resets_tenants_keep_the_arms_apart_even_side_by_side(pairs_only: Path, tmp_path: Path) -> None:
    events = tmp_path / "events.jsonl"
    with running("--events", events) as url:
        assert main(gateway(pairs_only, url, "--paired", "--concurrency", "4", "--connector-audit", events)) == 0
    result = result_of(pairs_only)
    assert result["config"]["isolation"] == "tenant"
    assert result["paired"]["clean_pairs"] == result["paired"]["pairs"] == len(result["requests"])
    rows = rows_of(pairs_only)
    assert rows["exact_repeat"]["backend"]["outcome"] != "cold_fallback"
    assert rows["cross_tenant"]["backend_confirmed_blocks"] == 0
    assert rows["negative_control"]["backend_confirmed_blocks"] == 0
    assert len({row["backend"]["engine_request_id"] for row in rows.values()}) == len(rows)


def test_resets_and_concurrency_are_refused(pairs_only: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(gateway(pairs_only, "http://127.0.0.1:9", "--paired", "--concurrency", "2", *RESETS)) == 2
    assert "--concurrency 2 with resets" in capsys.readouterr().err


def test_a_server_that_is_not_there_or_has_no_reset(pairs_only: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(gateway(pairs_only, "http://127.0.0.1:9", "--ready-seconds", "0")) == 2
    assert "start the server" in capsys.readouterr().err
    with running() as url:
        assert main(gateway(pairs_only, url, "--paired", "--reset-url", "/reset_everything")) == 2
    assert "/reset_everything: answers 404" in capsys.readouterr().err
    assert not pairs_only.with_name("r.json").exists()


def test_headers_are_sent_and_written_nowhere(pairs_only: Path, tmp_path: Path) -> None:
    with running("--require-header", "authorization: Bearer s3cret") as url:
        assert main(gateway(pairs_only, url, "--max-items", "1", "--ready-seconds", "0")) == 2
        assert main(gateway(pairs_only, url, "--max-items", "1", "--header", "Authorization: Bearer s3cret")) == 0
    written = [path.read_text() for path in tmp_path.iterdir() if path.is_file()]
    assert not [text for text in written if "s3cret" in text]
    with pytest.raises(SystemExit):
        main(gateway(pairs_only, url, "--header", "s3cret"))


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (("--capture-logprobs", "4"), "at least 5, got '4'"),
        (("--quality-threshold", "0"), "above 0 and at most 1, got '0'"),
        (("--quality-threshold", "-0.1"), "above 0 and at most 1, got '-0.1'"),
    ],
)
def test_what_lets_everything_pass_is_refused(
    pairs_only: Path, flags: Sequence[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in (gateway(pairs_only, "http://127.0.0.1:9"), sglang(pairs_only, "http://127.0.0.1:9")):
        with pytest.raises(SystemExit):
            main([*command, *flags])
        assert problem in capsys.readouterr().err


def test_refused_resets_are_repeated(pairs_only: Path) -> None:
    with running("--refuse-resets", "6") as url:
        assert main(gateway(pairs_only, url, "--paired", *RESETS, "--max-items", "1")) == 0
    assert result_of(pairs_only)["paired"]["clean_pairs"] == 1


def test_loads_never_confirmed_are_not_reuse(pairs_only: Path, tmp_path: Path) -> None:
    events = tmp_path / "events.jsonl"
    flags = ("--connector-audit", events, "--settle-ms", "50", "--max-items", "1")
    with running("--events", events, "--silent-loads") as url:
        assert main(gateway(pairs_only, url, *RESETS, *flags)) == 0
    row = rows_of(pairs_only)["exact_repeat"]
    assert row["backend"]["advertised_tokens"] > 0
    assert row["backend_confirmed_blocks"] is None
    assert row["cold"] is None
    assert result_of(pairs_only)["paired"] is None


def test_a_server_that_fails_everything_ends_the_run(pairs_only: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with running("--fail-on", "ferry") as url:
        assert main(gateway(pairs_only, url)) == 3
    assert "5 items in a row failed (donor_http_500 last)" in capsys.readouterr().err
    partial = pairs_only.with_name("r.json.partial.jsonl").read_text().splitlines()
    assert len(partial) == 1 + 5
    with running() as url:
        assert main(gateway(pairs_only, url, "--resume")) == 0
    assert "(5 that failed are measured again)" in capsys.readouterr().err
    result = result_of(pairs_only)
    assert all(row["warm"]["status"] == "ok" for row in result["requests"]), "failed rows are tried again"
    first, second = result["run"]["sittings"]
    assert (first["end"], first["kept_items"], first["measured_items"], first["failed_items"]) == (
        "broken off",
        0,
        5,
        5,
    )
    assert first["failed_arm_statuses"] == {"donor_http_500": 5}, "what failed before does not vanish"
    assert (second["end"], second["kept_items"], second["failed_items"]) == ("finished", 0, 0)
    assert second["measured_items"] == len(result["requests"])
    assert first["started_at_utc"] <= first["ended_at_utc"] <= second["started_at_utc"] <= second["ended_at_utc"]


def test_completions_and_a_tokenizer(pairs_only: Path) -> None:
    with running() as url:
        flags = ("--endpoint", "completions", "--capture-logprobs", "5", "--tokenizer", "builtin", "--max-items", "2")
        assert main(gateway(pairs_only, url, "--paired", *RESETS, *flags)) == 0
    row = rows_of(pairs_only)["exact_repeat"]
    assert row["pair"]["compared_positions"] == row["warm"]["completion_tokens"]
    assert row["exact_prefix_blocks"] == row["exact_hit_blocks"] > 0
    assert row["prompt_tokens"] > row["warm"]["prompt_tokens"], "of two counts the larger"


def sglang(manifest: Path, url: str, *flags: str) -> list[str]:
    output = str(manifest.with_name("r.json"))
    return ["run-live-sglang", "--manifest", str(manifest), "--output", output, "--base-url", url, *flags]


def test_sglang_is_flushed_before_each_arm(pairs_only: Path, tmp_path: Path) -> None:
    with running("--events", tmp_path / "e", "--refuse-resets", "2") as url:
        flags = ("--paired", "--connector-audit", str(tmp_path / "e"), "--max-items", "3")
        assert main(sglang(pairs_only, url, *flags)) == 0
    result = result_of(pairs_only)
    assert result["run"]["kind"] == "live_sglang"
    assert result["paired"]["clean_pairs"] == 3
    assert rows_of(pairs_only)["exact_repeat"]["warm"]["cached_tokens"] > 0
    assert main(sglang(pairs_only, url, "--paired", "--no-flush-per-item")) == 2


def test_sglang_without_flushes_keeps_its_cache(pairs_only: Path) -> None:
    with running() as url:
        assert main(sglang(pairs_only, url, "--no-flush-per-item", "--max-items", "2")) == 0
        assert main(sglang(pairs_only, url, "--no-flush-per-item", "--max-items", "2", "--cold-only")) == 2
    assert result_of(pairs_only)["config"]["isolation"] == "none"


STOPS_AFTER_ROWS = """
import os, runpy, signal, sys
from sembench.replay.partial import PartialWriter
lines, write = [], PartialWriter._write
def write_and_stop(writer, record):
    write(writer, record)
    lines.append(record)
    if len(lines) == 1 + rows:
        os.kill(os.getpid(), signal.SIGSTOP)
rows, PartialWriter._write = int(sys.argv.pop(1)), write_and_stop
runpy.run_module("sembench", run_name="__main__", alter_sys=True)
"""


@contextmanager
def started(arguments: Sequence[str], rows: int) -> Iterator[subprocess.Popen[str]]:
    """The command as a user runs it, in a process of its own. It stops itself (SIGSTOP) once it has written so many
    rows: what happens to it then does not depend on who is faster."""
    process = subprocess.Popen(
        [sys.executable, "-c", STOPS_AFTER_ROWS, str(rows), *arguments],
        env={**os.environ, "PYTHONPATH": str(SRC)},
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    with process:
        try:
            wait_until(lambda: process.poll() is not None or state_of(process.pid) == "T")
            assert process.poll() is None, "it ended before it had written its rows"
            yield process
        finally:
            process.kill()


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]


def broken_off(arguments: Sequence[str], rows: int, how: signal.Signals) -> tuple[int, str]:
    with started(arguments, rows) as process:
        process.send_signal(how)
        process.send_signal(signal.SIGCONT)
        _, reported = process.communicate(timeout=300)
        return process.returncode, reported


def comparable(manifest: Path) -> list[tuple[Any, ...]]:
    """All that a second run must give again: ids, order of arms, counts, texts; not the times."""
    return [
        (
            row["item_id"],
            row["total_blocks"],
            row["backend_confirmed_blocks"],
            row["backend"]["outcome"],
            row["warm"]["cached_tokens"],
            row["warm"]["text"],
            row["pair"] and (row["pair"]["warm_first"], row["pair"]["mean_kl"]),
            row["cold"] and (row["cold"]["contaminated"], row["cold"]["text"]),
        )
        for row in result_of(manifest)["requests"]
    ]


def test_killed_and_resumed_is_the_same_as_never_killed(manifest: Path, tmp_path: Path) -> None:
    events, log = tmp_path / "events.jsonl", tmp_path / "ids.txt"
    flags = ("--paired", *RESETS, "--connector-audit", events, "--capture-logprobs", "5")
    partial = manifest.with_name("r.json.partial.jsonl")
    with running("--events", events, "--log", log, "--ms-per-token", "0.05") as url:
        arguments = gateway(manifest, url, *flags)
        assert main(arguments) == 0
        whole = comparable(manifest)
        manifest.with_name("r.json").unlink()
        log.unlink()
        code, _ = broken_off(arguments, 4, signal.SIGKILL)
        assert code == -signal.SIGKILL
        assert not manifest.with_name("r.json").exists()
        kept = [json.loads(line)["item_id"] for line in partial.read_text().splitlines()[1:]]
        with partial.open("a") as stream:
            stream.write('{"item_id": "half a li')
        # Broken off again, this time inside the stream, then brought to its end.
        streams = sum(item.is_stream for item in read_manifest(manifest))
        resumed = [*arguments, "--resume"]
        code, reported = broken_off(resumed, len(whole) - streams + 1, signal.SIGTERM)
        assert code == 130
        assert "with --resume to continue" in reported
        assert main(resumed) == 0
    assert comparable(manifest) == whole
    assert not partial.exists()
    asked = log.read_text().split()
    assert [asked.count(item_id) for item_id in kept] == [1] * len(kept), "what was done is not done again"
    run = result_of(manifest)["run"]
    assert run["resumed"] is True
    assert [attempt["end"] for attempt in run["sittings"]] == ["broken off", "broken off", "finished"]
    assert sum(attempt["measured_items"] for attempt in run["sittings"]) == len(whole)


def test_ctrl_c_leaves_rows_and_says_how_to_continue(pairs_only: Path) -> None:
    partial = pairs_only.with_name("r.json.partial.jsonl")
    with running("--ms-per-token", "0.1") as url:
        arguments = gateway(pairs_only, url, "--paired", *RESETS)
        code, reported = broken_off(arguments, 2, signal.SIGINT)
    assert code == 130
    assert f"rows so far are in {partial}" in reported
    assert "Traceback" not in reported
    assert all(json.loads(line) for line in partial.read_text().splitlines())


def test_a_server_that_dies_costs_no_rows(pairs_only: Path) -> None:
    partial = pairs_only.with_name("r.json.partial.jsonl")
    with ExitStack() as stack:
        server = stack.enter_context(ExitStack())
        url = server.enter_context(running("--ms-per-token", "0.2"))
        process = stack.enter_context(started(gateway(pairs_only, url, "--paired", *RESETS), 2))
        server.close()
        process.send_signal(signal.SIGCONT)
        _, reported = process.communicate(timeout=300)
    assert process.returncode == 3
    assert "run again with --resume" in reported
    assert len(partial.read_text().splitlines()) >= 3


def test_rows_of_other_settings_are_not_taken(pairs_only: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with running("--ms-per-token", "0.1") as url:
        broken_off(gateway(pairs_only, url), 1, signal.SIGKILL)
        assert main(gateway(pairs_only, url, "--seed", "9", "--resume")) == 2
    assert "other settings" in capsys.readouterr().err


def test_rows_of_another_engine_are_not_taken(pairs_only: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with running("--ms-per-token", "0.1") as url:
        broken_off(gateway(pairs_only, url), 1, signal.SIGKILL)
    with running("--version", "9.9") as url:
        assert main(gateway(pairs_only, url, "--resume")) == 2
    assert "its rows are of fake 1.2.3, but the server is fake 9.9" in capsys.readouterr().err


WITHOUT_HTTPTOOLS = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition('.')[0] in {'httptools', 'prometheus_client', 'rich'}:
            raise ModuleNotFoundError(f'No module named {name!r}', name=name)
sys.meta_path.insert(0, Refuse())
from sembench.cli.main import main
raise SystemExit(main())
"""


def test_without_httptools_the_extra_is_named(pairs_only: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_HTTPTOOLS, *gateway(pairs_only, "http://127.0.0.1:9")],
        env={**os.environ, "PYTHONPATH": str(SRC)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 3, done.stderr
    assert "pip install 'kvmend[live]'" in done.stderr
