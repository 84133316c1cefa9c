"""What is printed after a live run: hit-only never alone, refusals named, silence told."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from sembench.console.live import live_tables
from sembench.console.table import narrow_text, plain_text
from sembench.live.attempts import LiveProgress
from sembench.metrics.rows import ArmRow, BackendRow, PairRow, RequestRow
from sembench.result import RunFacts, assemble
from semblend.contract import Evidence

CONFIG = {
    "block_size": 16,
    "endpoint": "chat",
    "isolation": "reset",
    "seed": 0,
    "recipient_resets": 1,
    "arms": "paired",
}


def pair(number: int, *, reused: int | None, negative: bool = False, cold_ms: float = 90.0) -> RequestRow:
    cold = ArmRow(
        request_id=f"cold.i{number}", status="ok", ttft_ms=cold_ms, cached_tokens=0, contaminated=False, text="x"
    )
    warm = ArmRow(
        request_id=f"i{number}", status="ok", ttft_ms=30.0 if reused else 90.0, cached_tokens=reused, text="x"
    )
    reason = None if reused else "no_candidate"
    outcome = "backend_materialized_reuse" if reused else "cold_fallback"
    reported = (
        None
        if reused is None
        else BackendRow(engine_request_id=f"i{number}", outcome=outcome, reused_tokens=reused, decline_reason=reason)
    )
    return RequestRow(
        item_id=f"i{number}",
        dataset="d",
        source_id="s",
        transform="negative_control" if negative else "rag_reorder",
        negative_control=negative,
        tenant=None,
        stream_id=None,
        prompt_tokens=64,
        total_blocks=4,
        backend_confirmed_blocks=None if reused is None else reused // 16,
        quality_pass=True,
        cold=cold,
        warm=warm,
        pair=PairRow(
            warm_first=False, mean_kl=0.01, worst_kl=0.02, compared_positions=4, agreed_tokens=4, answer_flip=False
        ),
        backend=reported,
    )


def shown(rows: list[RequestRow], attempts: Sequence[dict[str, Any]] = (), **config: Any) -> str:
    facts = RunFacts(
        kind="live_gateway",
        evidence=Evidence.MEASURED_LIVE,
        manifest_name="m.jsonl",
        manifest_digest="0" * 64,
        config={**CONFIG, **config},
        seed=0,
        extra={"sittings": list(attempts)},
    )
    return "".join(plain_text(table) for table in live_tables(assemble(facts, rows)))


ROWS = [
    pair(0, reused=48),
    pair(1, reused=0),
    pair(2, reused=0),
    pair(3, reused=0, negative=True),
    pair(4, reused=None),
]


def test_hit_only_is_shown_with_the_blended_figure_with_both_ns() -> None:
    text = shown(ROWS)
    line = next(line for line in text.splitlines() if line.startswith("all "))
    assert line.split()[5:9] == ["1.00x", "4", "3.00x", "1"]
    assert re.search(r"^blended: every clean pair, misses included +1\.00x +- +4$", text, re.MULTILINE)
    assert re.search(r"^ +of these with confirmed reuse \(hit-only\) +3\.00x +- +1$", text, re.MULTILINE)
    assert re.search(r"^negative controls \(must be 1\) +1\.00x +- +1$", text, re.MULTILINE)
    facts = RunFacts(
        kind="live_gateway",
        evidence=Evidence.MEASURED_LIVE,
        manifest_name="m.jsonl",
        manifest_digest="0" * 64,
        config=CONFIG,
        seed=0,
    )
    narrow = narrow_text(live_tables(assemble(facts, ROWS))[0], 80)
    assert "blended" in narrow
    assert "hit-only" in narrow


def test_outcomes_and_reasons_are_named_and_silence_is_reported() -> None:
    text = shown(ROWS)
    assert re.search(r"^cold_fallback +no_candidate +3 +1$", text, re.MULTILINE)
    assert "The backend did not report on 1 of 5 requests." in text
    assert "Outcomes reported by the backend" not in shown([pair(0, reused=None)])


def test_contaminated_and_failed_pairs_are_counted_and_their_times_left_out() -> None:
    hot = pair(1, reused=48, cold_ms=1.0)
    assert hot.cold is not None
    assert hot.warm is not None
    hot = replace(hot, cold=replace(hot.cold, cached_tokens=64, contaminated=True))
    failed = pair(2, reused=48)
    failed = replace(
        failed, warm=ArmRow(request_id="i2", status="reset_failed"), backend=None, backend_confirmed_blocks=None
    )
    text = shown([pair(0, reused=48), hot, failed])
    assert "cold arm not cold 1 (checked 2), failed 1 (reset_failed 1)" in text
    assert re.search(r"^blended: .* 3\.00x +- +1$", text, re.MULTILINE)


def test_one_arm_gives_no_speedup() -> None:
    rows = [replace(row, cold=None, pair=None) for row in ROWS]
    text = shown(rows, arms="warm")
    assert "no speedup can be derived" in text
    assert "1.00x" not in text


def test_what_failed_in_an_earlier_attempt_is_reported() -> None:
    attempts = [{"failed_items": 3}, {"failed_items": 2}, {"failed_items": 0}]
    for rows in (ROWS, [replace(row, cold=None, pair=None) for row in ROWS]):
        assert "Measured in 3 attempts; 5 items that failed in earlier ones" in shown(rows, attempts)
        assert "attempts" not in shown(rows, attempts[:1])


def test_progress_shows_medians_and_confirmed_reuse(capsys: pytest.CaptureFixture[str]) -> None:
    progress = LiveProgress("live replay", 3, [pair(0, reused=48)])
    progress.add(pair(1, reused=0))
    progress.end()
    reported = capsys.readouterr().err
    assert reported.startswith(
        "live replay: 2/3, TTFT cold 90 ms (n=2), TTFT warm 60 ms (n=2), reuse confirmed 1 of 2, "
    )
