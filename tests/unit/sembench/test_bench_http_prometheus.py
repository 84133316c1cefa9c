"""Scrapes as differences; a reset or a restart is not measured, never a negative or a small number."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sembase.errors import ConfigurationError
from sembench.http.prometheus import ScrapeDelta, difference, parse_scrape
from sembench.live.engine import metrics_change


def scrape_text(
    tokens: float, count: float = 2, total: float = 3, gauge: float = 1, started: float = 100, more: str = ""
) -> str:
    return f"""# HELP v:tokens_total Tokens.
# TYPE v:tokens_total counter
v:tokens_total{{model="m",q="a\\"b"}} {tokens}
{more}
# TYPE v:ttft_seconds histogram
v:ttft_seconds_bucket{{le="1"}} {count}
v:ttft_seconds_bucket{{le="+Inf"}} {count}
v:ttft_seconds_sum {total}
v:ttft_seconds_count {count}
# TYPE v:running gauge
v:running {gauge}
# TYPE process_start_time_seconds gauge
process_start_time_seconds {started}
"""


def between(before: str, after: str) -> ScrapeDelta:
    return difference(parse_scrape(before, "before"), parse_scrape(after, "after"))


@given(first=st.integers(0, 10**9), more=st.integers(0, 10**9))
def test_a_counter_is_its_difference(first: int, more: int) -> None:
    delta = between(scrape_text(first), scrape_text(first + more))
    assert [(c.name, c.labels, c.delta) for c in delta.counters] == [
        ("v:tokens_total", {"model": "m", "q": 'a"b'}, more)
    ]
    assert delta.resets == ()
    assert bool(delta.to_json()["counters"]) == (more > 0)


def test_histograms_have_the_mean_of_what_came_between() -> None:
    (histogram,) = between(scrape_text(1, 2, 3.0), scrape_text(1, 6, 11.0)).histograms
    assert (histogram.name, histogram.count, histogram.sum, histogram.mean) == ("v:ttft_seconds", 4, 8.0, 2.0)
    (idle,) = between(scrape_text(1), scrape_text(1)).histograms
    assert (idle.count, idle.mean) == (0, None)


@given(before=st.integers(1, 10**6), drop=st.integers(1, 10**6))
def test_a_counter_that_fell_was_reset(before: int, drop: int) -> None:
    delta = between(scrape_text(before), scrape_text(max(0, before - drop)))
    assert [c.delta for c in delta.counters] == [None]
    assert delta.resets == ("v:tokens_total",)
    assert delta.to_json()["counters"][0]["delta"] is None
    assert not delta.restarted


def test_a_restart_that_overtook_the_old_counts_is_still_seen() -> None:
    delta = between(scrape_text(5), scrape_text(50, 9, 30.0, started=200))
    assert delta.restarted
    assert [c.delta for c in delta.counters] == [None]
    assert [(h.count, h.sum) for h in delta.histograms] == [(None, None)]


def test_a_new_series_is_a_reset() -> None:
    created = '# TYPE v:tokens_created gauge\nv:tokens_created{{model="m",q="a\\"b"}} {}'
    delta = between(scrape_text(5, more=created.format(1)), scrape_text(50, more=created.format(2)))
    assert [c.delta for c in delta.counters] == [None]


def test_new_series_begin_at_zero_and_lost_ones_are_not_measured() -> None:
    new = 'v:tokens_total{model="n"} 7'
    assert {c.labels["model"]: c.delta for c in between(scrape_text(5), scrape_text(5, more=new)).counters} == {
        "m": 0,
        "n": 7,
    }
    lost = between(scrape_text(5, more=new), scrape_text(5))
    assert {c.labels["model"]: c.delta for c in lost.counters} == {"m": 0, "n": None}


def test_gauges_are_pairs() -> None:
    shown = between(scrape_text(1, gauge=1), scrape_text(1, gauge=4)).to_json()
    assert shown["gauges"] == [{"name": "v:running", "labels": {}, "before": 1, "after": 4}]


@pytest.mark.parametrize("text", ["<html>not here</html>", "a b c d", 'x{y="'])
def test_what_is_no_exposition_says_so(text: str) -> None:
    with pytest.raises(ConfigurationError, match="text format"):
        parse_scrape(text, "--metrics-url /metrics")


def test_an_infinite_gauge_does_not_spoil_a_result() -> None:
    before, after = (parse_scrape(f"# TYPE v:age gauge\nv:age {value}\n", "here") for value in ("+Inf", "NaN"))
    assert "Infinity" not in json.dumps(metrics_change(before, after), allow_nan=False)
