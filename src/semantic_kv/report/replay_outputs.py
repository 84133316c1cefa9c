"""A replayed trace -> replay_{results.json,metrics.csv,summary.md}, the four promised plots, report.html."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from onepage.formats import count
from semantic_kv.experiment.files import write_json, write_text
from semantic_kv.experiment.observed import ObservedComparison
from semantic_kv.experiment.study import Study
from semantic_kv.experiment.verdict import verdict_of
from semantic_kv.report.charts_observed import observed_chart
from semantic_kv.report.charts_policy import hit_rate_chart, tokens_saved_chart, ttft_chart
from semantic_kv.report.formats import percent
from semantic_kv.report.metrics_csv import metrics_csv
from semantic_kv.report.outputs import results_json
from semantic_kv.report.page import page_html
from semantic_kv.report.png import write_pngs
from semantic_kv.report.summary_md import summary_md


def write_replay(
    study: Study, comparison: ObservedComparison | None, notes: tuple[str, ...], folder: Path, facts: dict[str, str]
) -> None:
    """``notes`` say where the latency model comes from."""
    results = results_json(study, facts)
    results["observed"] = observed_json(comparison)
    results["latency_notes"] = list(notes)
    write_json(folder / "replay_results.json", results)
    write_text(folder / "replay_metrics.csv", metrics_csv(study))
    told = "\n".join(["", "## Against what was observed", "", *(f"- {line}" for line in (*notes, *_lines(comparison)))])
    write_text(folder / "replay_summary.md", summary_md(study, verdict_of(study)) + told + "\n")
    charts = [
        replace(ttft_chart(study), key="replay_policy_avg_ttft"),
        replace(tokens_saved_chart(study), key="replay_tokens_saved"),
        replace(hit_rate_chart(study), key="replay_hit_rate"),
        observed_chart(comparison),
    ]
    write_pngs(charts, folder)
    write_text(folder / "report.html", page_html([study], study.config.experiment, facts, observed_chart(comparison)))


def observed_json(comparison: ObservedComparison | None) -> dict[str, object] | None:
    if comparison is None:
        return None
    return {
        "policy": comparison.policy,
        "model": comparison.model,
        "requests": int(comparison.observed_ms.size),
        "observed_ttft_mean_ms": float(comparison.observed_ms.mean()),
        "modelled_ttft_mean_ms": float(comparison.modelled_ms.mean()),
        "median_absolute_percentage_error": comparison.median_absolute_percentage_error,
        "observed_hit_tokens": comparison.observed_hit_tokens,
        "modelled_hit_tokens": comparison.modelled_hit_tokens,
        "hit_token_pairs": comparison.hit_token_pairs,
    }


def _lines(comparison: ObservedComparison | None) -> list[str]:
    if comparison is None:
        return ["The trace holds no observed TTFT, so the model is not held against anything."]
    lines = [
        f"{count(comparison.observed_ms.size)} requests with an observed TTFT, simulated under {comparison.policy}: "
        f"median absolute error of the modelled TTFT {percent(comparison.median_absolute_percentage_error)}.",
    ]
    if comparison.observed_hit_tokens is not None:
        lines.append(
            f"Hit tokens of {count(comparison.hit_token_pairs)} requests: observed "
            f"{count(comparison.observed_hit_tokens)}, simulated {count(comparison.modelled_hit_tokens)}."
        )
    lines.append(
        "A valid claim: on this trace, under this latency model, a policy would have kept more reusable tokens. "
        "Not a claim: that it made a real server faster."
    )
    return lines
