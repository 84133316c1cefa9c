"""The predicted break-even: sane at its edges, and marked as predicted where it is published."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from pathlib import Path

from benchmarks.kernels.break_even import break_even_tokens, first_token

from semestimate.hardware import DEVICES, MODELS, prefill_s


def test_break_even_grows_with_the_overhead_and_is_the_point_where_both_cost_the_same() -> None:
    for device in DEVICES:
        for model in MODELS:
            low, high = (break_even_tokens(model, device, overhead) for overhead in (1e-3, 5e-3))
            assert 0 < low < high
            assert abs(high - 5 * low) < 1e-6 * high


def test_loading_never_pays_over_a_link_slower_than_prefill() -> None:
    assert break_even_tokens(MODELS[0], replace(DEVICES[0], host_link=1e6), 1e-3) == inf


def test_attention_makes_long_prompts_dearer_per_token() -> None:
    model, device = MODELS[1], DEVICES[2]
    assert prefill_s(model, device, 32768) > 4 * prefill_s(model, device, 8192)


def test_a_stream_beside_the_forward_pass_is_never_slower_than_copies_before_it() -> None:
    for device in DEVICES:
        for model in MODELS:
            found = first_token(model, device, 5e-3)
            assert found.by_stream < found.directly


def test_the_page_calls_its_figures_predicted() -> None:
    page = Path(__file__).parents[3] / "docs/reference/break-even.md"
    assert "**Predicted, not measured.**" in page.read_text(encoding="utf-8")
