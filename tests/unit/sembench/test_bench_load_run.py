"""run-load as a user runs it, against the stand-in server; and the loops alone, where time can be made to go wrong."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from tests.fakes.openai_server import running
from tests.waiting import until

from sembench.cli.main import main
from sembench.http.client import LiveClient, LiveReply, LiveRequest
from sembench.load.client_cost import LagProbe
from sembench.load.records import LoadRecord
from sembench.load.schedule import Limit, Sender, closed_loop, open_loop
from sembench.manifest import WorkloadItem, write_manifest

SRC = Path(__file__).parents[3] / "src"


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with running(ttft_ms=20, itl_ms=2, tokens=64) as url:
        yield url


def run(server: str, output: Path, *arguments: str) -> tuple[int, dict[str, Any], list[dict[str, Any]]]:
    code = main(["run-load", "--base-url", server, "--output", str(output), *arguments])
    lines = (output.parent / f"{output.name}.requests.jsonl").read_text(encoding="utf-8").splitlines()
    return code, json.loads(output.read_text(encoding="utf-8")), [json.loads(line) for line in lines]


def test_a_closed_loop(server: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [
        "--concurrency",
        "4",
        "--requests",
        "30",
        "--max-tokens",
        "5",
        "--prompt-tokens",
        "40",
        "--warm-up",
        "3",
    ]
    slo = ["--slo-ttft-ms", "60000", "--slo-tpot-ms", "60000"]
    code, result, rows = run(server, tmp_path / "r.json", *arguments, *slo, "--metrics-url", "/metrics")
    assert code == 0
    assert result["result_version"] == "sembench.load.v1"
    assert result["run"]["complete"] is True
    shape = {name: result["config"][name] for name in ("ramp_up_seconds", "burstiness", "time_scale")}
    assert shape == {"ramp_up_seconds": 0.0, "burstiness": None, "time_scale": None}, "what shaped nothing is not told"
    assert result["run"]["model"] == "fake-model"
    assert result["run"]["warm_up"] == {"requests": 3, "failed": 0}
    assert result["requests"]["by_status"] == {"ok": 30}
    assert result["throughput"]["peak_in_flight"] == 4
    assert [len(row["chunk_ms"]) for row in rows] == [5] * 30
    assert {row["prompt_tokens"] for row in rows} == {40}
    assert result["latency_ms"]["itl"]["n"] == 30 * 4
    assert result["latency_ms"]["ttft"]["min"] >= 20
    assert result["lateness_ms"] is None  # nothing was scheduled
    assert result["goodput"]["good"] == 30
    counted = {c["name"]: c["delta"] for c in result["server_metrics"]["counters"]}
    assert counted["fake:requests_total"] == 30  # the warm-up came before the first scrape
    assert result["client"]["idle_cost"]["client_ms"]["n"] == 30
    shown = capsys.readouterr().out
    for words in ("TTFT", "event loop lag", "bare socket", "goodput", "fake:generation_tokens_total"):
        assert words in shown
    assert "from schedule" not in shown


def test_an_open_loop_does_not_wait_for_the_server(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The server takes half a second for each; a client that waited could send two per connection and second."""
    arguments = ["--rate", "60", "--duration", "1.5", "--max-tokens", "1", "--prompt-tokens", "5", "--seed", "3"]
    with running(ttft_ms=500, itl_ms=1) as url:
        _, result, rows = run(url, tmp_path / "r.json", *arguments)
        _, again, same = run(url, tmp_path / "s.json", *arguments)
    assert 50 <= len(rows) <= 150
    assert result["throughput"]["peak_in_flight"] >= 15
    schedule, other = (sorted(row["scheduled_s"] for row in found) for found in (rows, same))
    assert schedule == other  # whatever the server did
    assert max(schedule) < 1.5
    assert all(row["lateness_ms"] >= -1.0 for row in rows)
    assert result["lateness_ms"]["n"] == len(rows) == again["requests"]["sent"]
    for row in rows:
        assert row["sent_s"] * 1000 == pytest.approx(row["scheduled_s"] * 1000 + row["lateness_ms"], abs=2.0)
    shown = capsys.readouterr().out
    assert "TTFT from schedule" in shown
    assert "sent late" in shown


class StubClient:
    """Answers at once; the client's own slowness is what is looked at."""

    async def ask(self, request: LiveRequest) -> LiveReply:
        return LiveReply(request.request_id, "ok", ttft_ms=1.0, total_ms=1.0, sent_at=time.perf_counter())


def stub_sender(keep: list[LoadRecord], block_at: int | None = None, block_s: float = 0.3) -> Sender:
    def request_of(number: int) -> LiveRequest:
        if number == block_at:
            time.sleep(block_s)
        return LiveRequest(f"load.{number}", "x", 1, "m")

    return Sender(cast(LiveClient, StubClient()), request_of, keep.append)


def test_a_client_that_stalls_cannot_hide_it() -> None:
    """Coordinated omission: the stall at request 5 must show in the requests that were due meanwhile."""
    kept: list[LoadRecord] = []
    asyncio.run(open_loop(stub_sender(kept, block_at=5), [0.02 * n for n in range(20)], Limit(None, None)))
    assert len(kept) == 20
    late = {record.request_id: record.lateness_ms or 0.0 for record in kept}
    assert late["load.5"] >= 150
    assert late["load.10"] >= 50
    by_id = {record.request_id: record for record in kept}
    stalled = by_id["load.5"]
    assert stalled.ttft_ms == 1.0  # what the server did
    assert (stalled.from_schedule(stalled.ttft_ms) or 0.0) >= 150  # what a user would have felt


def test_limits_and_workers() -> None:
    kept: list[LoadRecord] = []
    sender = stub_sender(kept)
    asyncio.run(closed_loop(sender, [0.0, 0.0, 0.0], Limit(10, None)))
    assert sorted(int(record.request_id[5:]) for record in kept) == list(range(10))
    kept.clear()
    asyncio.run(open_loop(stub_sender(kept), [0.0, 0.01, 0.02, 9.0], Limit(None, 0.5)))
    assert len(kept) == 3


def test_the_lag_probe_sees_a_blocked_loop() -> None:
    async def go() -> None:
        async with LagProbe() as probe:
            await until(lambda: probe.lags_ms, "the idle loop was never probed")
            probe.lags_ms.clear()

            def seen() -> bool:
                time.sleep(0.3)  # blocks the loop; again where the probe's own thread was kept waiting
                return max(probe.lags_ms, default=0.0) >= 150

            await until(seen, "a blocked loop was never seen")

    asyncio.run(go())


def test_a_manifest_is_sent_once(server: str, tmp_path: Path) -> None:
    manifest = tmp_path / "m.jsonl"
    write_manifest(
        manifest,
        [
            WorkloadItem(
                item_id=str(n), dataset="d", source_id=str(n), transform="t", recipient_prompt="word " * (n + 1)
            )
            for n in range(7)
        ],
    )
    _, result, rows = run(
        server, tmp_path / "r.json", "--manifest", str(manifest), "--concurrency", "2", "--max-tokens", "2"
    )
    assert sorted(row["prompt_tokens"] for row in rows) == list(range(1, 8))
    assert result["config"]["workload"]["items"] == 7
    assert len(result["config"]["workload"]["digest"]) == 64


def test_a_trace_gives_times_and_lengths(server: str, tmp_path: Path) -> None:
    trace = tmp_path / "t.jsonl"
    lines = [{"timestamp": 1000 * n, "input_length": 20 + n, "output_length": n + 1, "hash_ids": [n]} for n in range(4)]
    trace.write_text("".join(json.dumps(line) + "\n" for line in lines))
    arguments = ["--trace", str(trace), "--time-scale", "0.05", "--endpoint", "completions", "--ignore-eos"]
    _, result, rows = run(server, tmp_path / "r.json", *arguments)
    rows.sort(key=lambda row: row["scheduled_s"])
    assert [row["scheduled_s"] for row in rows] == pytest.approx([0.0, 0.05, 0.1, 0.15])
    assert [(row["prompt_tokens"], row["completion_tokens"]) for row in rows] == [(20, 1), (21, 2), (22, 3), (23, 4)]
    assert result["latency_ms"]["tpot"]["n"] == 3


def test_ctrl_c_leaves_a_valid_partial_result(tmp_path: Path) -> None:
    output = tmp_path / "r.json"
    with running(ttft_ms=20, itl_ms=50, tokens=64) as url:
        load = ["--rate", "30", "--duration", "60", "--max-tokens", "20", "--prompt-tokens", "5"]
        command = [sys.executable, "-m", "sembench", "run-load", "--base-url", url, "--output", str(output), *load]
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(SRC)},
        )
        rows = tmp_path / "r.json.requests.jsonl"
        deadline = time.monotonic() + 300
        while time.monotonic() < deadline and (not rows.exists() or rows.read_text().count("\n") < 5):
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=300)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert "partial result" in out
    assert "interrupted" in out
    result = json.loads(output.read_text(encoding="utf-8"))
    assert (result["run"]["complete"], result["run"]["stopped_by"]) == (False, "interrupt")
    assert result["requests"]["ok"] >= 5
    assert result["requests"]["cancelled"] >= 1
    written = [json.loads(line) for line in rows.read_text().splitlines()]
    assert len(written) == result["requests"]["sent"] == result["requests"]["ok"] + result["requests"]["cancelled"]


def test_a_missing_server_is_reported_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with running() as url:
        gone = url
    load = ["--concurrency", "1", "--requests", "1", "--ready-seconds", "0"]
    code = main(["run-load", "--base-url", gone, "--output", str(tmp_path / "r.json"), *load])
    assert code == 2
    assert "is not ready" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_server_that_dies_in_the_middle_is_in_the_result(tmp_path: Path) -> None:
    """Replies are kept, the rest is counted by status, the lost scrape is reported."""
    output = tmp_path / "r.json"
    load = [
        "--concurrency",
        "2",
        "--requests",
        "40",
        "--max-tokens",
        "2",
        "--metrics-url",
        "/metrics",
        "--prompt-tokens",
        "5",
    ]
    with running(ttft_ms=20, itl_ms=2, ends_after=6) as url:
        assert main(["run-load", "--base-url", url, "--output", str(output), *load]) == 0
    result = json.loads(output.read_text(encoding="utf-8"))
    assert result["requests"]["sent"] == 40
    assert 5 <= result["requests"]["ok"] <= 6
    assert result["requests"]["by_status"]["connection"] >= 1
    assert "fault" in result["server_metrics"]
    assert any("no second scrape" in warning for warning in result["warnings"])
    assert any("failed" in warning for warning in result["warnings"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--rate", "1", "--concurrency", "1"], "not allowed with"),
        (["--requests", "1"], "one of the arguments"),
        (["--rate", "0", "--requests", "1"], "expected a finite number above 0"),
        (["--rate", "1", "--requests", "1", "--header", "x"], "expected a header of the form 'Name: value'"),
        (["--concurrency", "1", "--requests", "1", "--burstiness", "2"], "--burstiness applies only to --rate"),
        (["--concurrency", "1", "--requests", "1", "--time-scale", "1"], "--time-scale applies only to --trace"),
        (["--rate", "9", "--requests", "1", "--time-scale", "0.1"], "--time-scale applies only to --trace"),
        (
            ["--rate", "9", "--requests", "1", "--ramp-up-seconds", "0"],
            "--ramp-up-seconds applies only to --concurrency",
        ),
        (["--concurrency", "1"], "--duration S or --requests N"),
        (["--concurrency", "999999", "--requests", "1"], "open files"),
    ],
)
def test_wrong_usage(
    server: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    try:
        code = main(["run-load", "--base-url", server, "--output", str(tmp_path / "r.json"), *arguments])
    except SystemExit as stop:
        code = int(stop.code or 0)
    assert code == 2
    assert message in capsys.readouterr().err
