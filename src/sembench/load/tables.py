"""Tables of ``run-load``: latencies with intervals, the load, the client's overhead, server counters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from sembench.console.table import NOT_MEASURED, Table, number, percent
from sembench.load.summary import PERCENTS

_LATENCIES: Final = (
    ("TTFT", "ttft"),
    ("TTFT from schedule", "ttft_from_schedule"),
    ("TPOT", "tpot"),
    ("ITL", "itl"),
    ("E2E", "e2e"),
    ("E2E from schedule", "e2e_from_schedule"),
)
_MAX_COUNTERS: Final = 20


def tables(result: Mapping[str, Any]) -> Iterator[Table]:
    yield latency_table(result)
    yield load_table(result)
    yield client_table(result)
    if result["server_metrics"] is not None and "fault" not in result["server_metrics"]:
        yield server_table(result["server_metrics"])


def latency_table(result: Mapping[str, Any]) -> Table:
    rows = [
        _latency_row(title, result["latency_ms"][name])
        for title, name in _LATENCIES
        if result["latency_ms"][name] is not None
    ]
    notes = [
        "In ms, with 95 % intervals from order statistics ('?': too few requests for that bound).",
        *(
            ["From schedule: measured from when a request was due, not from when it was sent."]
            if result["lateness_ms"]
            else []
        ),
        *(f"Warning: {warning}." for warning in result["warnings"]),
    ]
    columns = ("latency", "n", "mean", *(f"p{percent}" for percent in PERCENTS), "max")
    title = f"Load on {result['run']['model']}, evidence: {result['run']['evidence']}"
    return Table(title, columns, tuple(rows), tuple(notes), ("latency", "n", "p50", "p99"))


def _latency_row(title: str, summary: Mapping[str, Any]) -> tuple[str, ...]:
    shown = (_with_interval(summary[f"p{percent}"]) for percent in PERCENTS)
    return (title, number(summary["n"]), number(summary["mean"], 1), *shown, number(summary["max"], 1))


def _with_interval(figure: Mapping[str, Any]) -> str:
    low, high = ("?" if bound is None else number(bound, 1) for bound in figure["ci95"])
    return f"{number(figure['value'], 1)} [{low}, {high}]"


def load_table(result: Mapping[str, Any]) -> Table:
    requests, throughput = result["requests"], result["throughput"]
    rows = [
        ("requests sent", number(requests["sent"])),
        *((f"  {status}", number(count)) for status, count in requests["by_status"].items()),
        ("wall time, s", number(throughput["wall_s"], 1)),
        ("requests/s (ok)", number(throughput["requests_per_s"], 2)),
        ("output tokens/s", number(throughput["output_tokens_per_s"], 1)),
        ("prompt tokens/s", number(throughput["prompt_tokens_per_s"], 1)),
        ("max in flight", number(throughput["peak_in_flight"])),
    ]
    if (cached := result["cached_tokens"]) is not None:
        counts = f"{cached['cached']:,} / {cached['prompt']:,}"
        rows.append(("prompt tokens from cache", f"{percent(cached['share'])} ({counts})"))
    if (good := result["goodput"]) is not None:
        limits = [
            f"{n} {good[k]:g} ms" for n, k in (("TTFT", "slo_ttft_ms"), ("TPOT", "slo_tpot_ms")) if good[k] is not None
        ]
        rows.append((f"good ({', '.join(limits)})", f"{percent(good['share'])} ({good['good']:,} / {good['of']:,})"))
        rows.append(("goodput, requests/s", number(good["good_per_s"], 2)))
        if good["good_from_schedule"] is not None:
            rows.append(("good from schedule", f"{good['good_from_schedule']:,} / {good['of']:,}"))
    return Table("The load", ("figure", "value"), tuple(rows))


def client_table(result: Mapping[str, Any]) -> Table:
    """What the client itself adds to the latencies."""
    client = result["client"]
    shown = (
        ("sent late (schedule to send)", result["lateness_ms"]),
        ("send to socket (and connecting)", client["wire_ms"]),
        ("event loop lag (socket to time stamp)", client["event_loop_lag_ms"]),
    )
    rows = [
        (title, *(number(s[f"p{p}"]["value"], 2) for p in (50, 99)), number(s["max"], 2))
        for title, s in shown
        if s is not None
    ]
    notes = [f"CPU: {percent(client['cpu_share_of_one_core'])} of one core."]
    if (idle := client["idle_cost"]) is not None:
        notes.append(
            f"Idle, GET {idle['path']}: {idle['client_ms']['p50']['value']:.2f} ms by this client, "
            f"{idle['bare_socket_ms']['p50']['value']:.2f} ms by a bare socket: "
            f"the client adds at most {idle['difference_p50_ms']:.2f} ms to a TTFT."
        )
    return Table("Client overhead, in ms", ("what", "p50", "p99", "max"), tuple(rows), tuple(notes))


def server_table(metrics: Mapping[str, Any]) -> Table:
    rows = [(_series(c), number(c["delta"])) for c in metrics["counters"]]
    rows += [
        (f"{_series(h)}, mean of {number(h['count'])}", NOT_MEASURED if h["mean"] is None else f"{h['mean']:,.4g}")
        for h in metrics["histograms"]
    ]
    left = len(rows) - _MAX_COUNTERS
    notes = (f"{left} more in the result.",) if left > 0 else ()
    return Table("Server metrics during the load", ("metric", "difference"), tuple(rows[:_MAX_COUNTERS]), notes)


def _series(metric: Mapping[str, Any]) -> str:
    labels = ",".join(f"{k}={v}" for k, v in metric["labels"].items() if k not in ("model_name", "engine"))
    return f"{metric['name']}{{{labels}}}" if labels else str(metric["name"])
