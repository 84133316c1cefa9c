"""What the load clients wrote is read as they meant it, and a difference between them is printed as one."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from benchmarks.clients import guidellm, run_load, vllm_bench
from benchmarks.clients.cells import REQUESTS, TTFT, cells_of, pairs, ratio
from benchmarks.clients.client import Client, ClientError, Figures
from benchmarks.clients.load import Load, Target
from benchmarks.clients.rounds import Reading
from benchmarks.clients.servers import Account, Pace
from benchmarks.clients.verdicts import fast_verdicts, real_verdicts

RECORDED = Path(__file__).parent / "recorded"
LOAD = Load(concurrency=4, requests=60, warm_up=4, prompt_tokens=256, output_tokens=16, seed=1)
FIGURES = Figures(60, 0, 100.0, 120.0, 105.0, 20.0, 10.0, 160.0)
SERVER = Account(requests=64, prompt_tokens=64 * 256, output_tokens=64 * 16, ttft_mean_ms=95.0)
TARGET = Target("http://127.0.0.1:1", "m")


def reading(client: str, number: int, figures: Figures | None = FIGURES, server: Account = SERVER) -> Reading:
    return Reading(client, number, LOAD, figures, None, server, 1.0, 0.1)


@pytest.mark.parametrize(
    ("client", "figures"),
    [
        (run_load.CLIENT, Figures(6, 0, 357.9, 1109.6, 499.1, 14.566, 2.458, 9.831)),
        (guidellm.client(), Figures(59, 0, 25.76, 35.04, 28.03, 7.456, 22.53, 350.9)),
    ],
)
def test_a_recorded_output_is_read(client: Client, figures: Figures) -> None:
    read = client.read(RECORDED / client.name.replace(" ", "-"))

    assert (read.ok, read.errors) == (figures.ok, figures.errors)
    for name in Figures.__slots__[2:]:
        assert getattr(read, name) == pytest.approx(getattr(figures, name), rel=1e-3), name


def test_no_answer_is_no_time(tmp_path: Path) -> None:
    zeros = dict.fromkeys(("median_ttft_ms", "p90_ttft_ms", "mean_ttft_ms", "median_tpot_ms"), 0.0)
    result = {"completed": 0, "failed": 6, "request_throughput": 0.0, "output_throughput": 0.0, **zeros}
    (tmp_path / "bench.json").write_text(json.dumps(result))

    assert vllm_bench.CLIENT.read(tmp_path) == Figures(0, 6, None, None, None, None, 0.0, 0.0)


def test_every_client_gets_the_same_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Load, "prompts", lambda _: ("one", "two"))
    monkeypatch.setattr(Load, "warm_up_prompts", lambda _: ("warm",))
    ours = run_load.CLIENT.command(LOAD, TARGET, tmp_path)
    bench = vllm_bench.CLIENT.command(LOAD, TARGET, tmp_path)
    asked = [json.loads(line)["prompt"] for line in (tmp_path / "prompts.jsonl").read_text().splitlines()]
    guide = guidellm.client().command(LOAD, TARGET, tmp_path)
    lines = [json.loads(line) for line in (tmp_path / "prompts.jsonl").read_text().splitlines()]

    assert ours[ours.index("--concurrency") + 1] == bench[bench.index("--max-concurrency") + 1] == "4"
    assert asked == ["one", "two"]
    assert [line["prompt"] for line in lines] == ["warm", "one", "two"]
    assert {line["output_tokens_count"] for line in lines} == {16}
    assert json.loads(guide[guide.index("--constraint") + 1])["count"] == 3


def test_a_client_that_fails_says_so(tmp_path: Path) -> None:
    failing = Client("no", lambda *_: ["/bin/sh", "-c", "echo out of luck; exit 3"], vllm_bench.CLIENT.read)
    silent = Client("no", lambda *_: ["/bin/true"], vllm_bench.CLIENT.read)

    with pytest.raises(ClientError, match="exit code 3; its output ends: out of luck"):
        failing.measure(LOAD, TARGET, 10)
    with pytest.raises(ClientError, match="not as expected"):
        silent.measure(LOAD, TARGET, 10)


def test_a_client_that_hangs_is_ended() -> None:
    hanging = Client("no", lambda *_: ["/bin/sleep", "60"], vllm_bench.CLIENT.read)

    with pytest.raises(ClientError, match="not done after"):
        hanging.measure(LOAD, TARGET, 0.2)


def test_ratios_are_taken_within_a_round() -> None:
    slow = replace(FIGURES, ttft_p50_ms=200.0)
    slower = replace(FIGURES, ttft_p50_ms=220.0)
    first = replace(FIGURES, ttft_p50_ms=110.0)
    cells = cells_of(
        [reading("run-load", 0), reading("x", 0, first), reading("run-load", 1, slow), reading("x", 1, slower)]
    )
    (theirs, ours), *none = pairs(cells)

    assert not none
    assert ratio(theirs, ours, TTFT) == pytest.approx(1.1)
    assert ratio(theirs, ours, REQUESTS) == pytest.approx(1.0)


def test_a_difference_a_failure_and_another_load_are_no_pass() -> None:
    apart = replace(FIGURES, ttft_p50_ms=110.0, errors=1)
    other_load = replace(SERVER, output_tokens=64 * 15)
    cells = cells_of([reading("run-load", 0), reading("x", 0, apart, other_load), reading("y", 0, None)])
    words = {verdict.name: verdict.word for verdict in real_verdicts(cells)}

    assert words["x, 4 at a time: TTFT p50 apart from run-load"] == "NOT REACHED"
    assert words["x, 4 at a time: TPOT p50 apart from run-load"] == "PASS"
    assert words["x, 4 at a time: requests that failed"] == "NOT REACHED"
    assert words["x, 4 at a time: tokens in and out beside the load's, as the server counts"] == "VIOLATED"
    assert words["y, 4 at a time: requests/s apart from run-load"] == "NOT MEASURED"
    assert words["y, 4 at a time: requests that failed"] == "NOT MEASURED"


def test_the_faster_client_passes_on_a_fast_server() -> None:
    slow = replace(FIGURES, requests_per_s=5.0, ttft_p50_ms=130.0)
    cells = cells_of([reading("run-load", 0), reading("x", 0, slow)])

    assert {verdict.word for verdict in fast_verdicts(cells, Pace(90.0, 1.0))} == {"PASS"}
    assert Pace(100.0, 10.0).most_requests_per_s(26, 16) == pytest.approx(100.0)
