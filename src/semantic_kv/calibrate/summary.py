"""A calibration -> the lines a person reads: how good it is first, then what it found, then what it could not find."""

from __future__ import annotations

from semantic_kv.calibrate.result import Calibration, RungResult
from semantic_kv.calibrate.rungs import RUNGS


def summarize(calibration: Calibration) -> str:
    """Markdown that reads as plain text too."""
    scores = calibration.chosen.held_out
    fitted = calibration.chosen.fitted
    assert scores is not None
    assert fitted is not None
    lines = [
        f"# Calibration on {calibration.trace}",
        "",
        f"Held out, the latest {scores.requests} of {scores.requests + fitted.requests} requests: median absolute "
        f"error {scores.mdape:.1%}, 90th percentile {scores.p90_ape:.1%}, within 20 % {scores.within_20_percent}/"
        f"{scores.requests}, r2 {_number(scores.r2)}, residuals {scores.residual_ms_p10:+.0f} / "
        f"{scores.residual_ms_p50:+.0f} / {scores.residual_ms_p90:+.0f} ms (p10 / p50 / p90).",
        f"The model is '{calibration.rung}'. Its times are modelled from arrivals and token counts; no observed time "
        "of a held-out request enters.",
        "",
        "| coefficient | value | 95 % interval |",
        "|---|---|---|",
        *_coefficient_lines(calibration),
        "",
        "| model | error left out in turn | fitted MdAPE | held-out MdAPE | held-out r2 |",
        "|---|---|---|---|---|",
        *(_rung_line(rung, rung.name == calibration.rung) for rung in calibration.rungs),
    ]
    skipped = [f"- {count} requests skipped: {reason}" for reason, count in calibration.skipped.items()]
    notes = [*skipped, *(f"- {note}" for note in calibration.notes)]
    return "\n".join([*lines, *(["", *notes] if notes else [])]) + "\n"


def _coefficient_lines(calibration: Calibration) -> list[str]:
    rung = next(each for each in RUNGS if each.name == calibration.rung)
    lines = []
    for name in rung.coefficients:
        interval = calibration.intervals.get(name)
        shown = "-" if interval is None else f"{interval.low:.4g} to {interval.high:.4g}"
        lines.append(f"| {name} | {getattr(calibration.model, name):.4g} | {shown} |")
    return lines


def _rung_line(rung: RungResult, chosen: bool) -> str:
    name = f"**{rung.name}**" if chosen else rung.name
    if rung.fitted is None or rung.held_out is None or rung.choice_error is None:
        return f"| {name} | not fitted | - | - | - |"
    return (
        f"| {name} | {rung.choice_error:.3f} | {rung.fitted.mdape:.1%} | {rung.held_out.mdape:.1%} | "
        f"{_number(rung.held_out.r2)} |"
    )


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
