"""Records or columns in, a calibration out; a calibration in, its JSON, Markdown and scatter plot out."""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

import numpy as np

from semantic_kv.calibrate.fit import FitOptions, calibrate
from semantic_kv.calibrate.observations import observations_from_records, observations_from_trace
from semantic_kv.calibrate.result import Calibration, RungResult
from semantic_kv.calibrate.rungs import RUNGS
from sembase.errors import ConfigurationError, MissingDependencyError
from sembase.onepage.chart import Chart, Curve, DataTable, Dot, Dots, Layer, Mark
from sembase.onepage.page import style_of
from sembase.onepage.png import chart_png, rasteriser
from sembase.onepage.ticks import log_axis
from sembase.trace.columns import BlockTrace
from sembase.trace.record import TraceRecord

FILES: Final = ("calibration.json", "calibration.md", "observed_vs_modelled_ttft.png")


def calibrate_records(
    records: Iterable[TraceRecord], *, name: str = "trace", options: FitOptions | None = None
) -> Calibration:
    return calibrate(observations_from_records(records, name), options)


def calibrate_trace(trace: BlockTrace, options: FitOptions | None = None) -> Calibration:
    return calibrate(observations_from_trace(trace), options)


def write_calibration(calibration: Calibration, directory: Path) -> list[Path]:
    """Returns the files written. Without resvg there is no plot."""
    record, page, picture = FILES
    files: dict[str, bytes] = {
        record: (json.dumps(calibration.as_record(), indent=1) + "\n").encode(),
        page: summarize(calibration).encode(),
    }
    with suppress(MissingDependencyError):
        files[picture] = scatter_png(calibration)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            (directory / name).write_bytes(content)
    except OSError as error:
        raise ConfigurationError(f"--output-dir {directory}: cannot be written: {error.strerror or error}") from None
    return [directory / name for name in files]


def summarize(calibration: Calibration) -> str:
    """Markdown, also readable as plain text."""
    scores = calibration.chosen.held_out
    fitted = calibration.chosen.fitted
    assert scores is not None
    assert fitted is not None
    lines = [
        f"# Calibration on {calibration.trace}",
        "",
        f"On the latest {scores.requests} of {scores.requests + fitted.requests} requests, held out: median absolute "
        f"error {scores.mdape:.1%}, 90th percentile {scores.p90_ape:.1%}, within 20 % {scores.within_20_percent}/"
        f"{scores.requests}, r2 {_number(scores.r2)}, residuals {scores.residual_ms_p10:+.0f} / "
        f"{scores.residual_ms_p50:+.0f} / {scores.residual_ms_p90:+.0f} ms (p10 / p50 / p90).",
        f"The model is '{calibration.rung}'. Its times are modelled from arrivals and token counts; observed times of "
        "held-out requests are not used.",
        "",
        "| coefficient | value | 95 % interval |",
        "|---|---|---|",
        *_coefficient_lines(calibration),
        "",
        "| model | cross-validated error | fitted MdAPE | held-out MdAPE | held-out r2 |",
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


_STATES: Final[tuple[tuple[bool, Mark, str], ...]] = ((False, "disc", "alone"), (True, "diamond", "server busy"))


def scatter_png(calibration: Calibration) -> bytes:
    return chart_png(_scatter(calibration), style_of("semantic_kv.report"), rasteriser("simulator", "the scatter plot"))


def _scatter(calibration: Calibration) -> Chart:
    """On the solid line the model is exact; between the dashed ones it is within 20 % of the observed time."""
    scores = calibration.chosen.held_out
    assert scores is not None
    x, y = calibration.observed_ms, np.maximum(calibration.predicted_ms, 0.1)
    ends = float(min(x.min(), y.min())), float(max(x.max(), y.max()))
    layers: list[Layer] = [Curve("", "muted", tuple((end, end) for end in ends))]
    layers += [Curve("", "muted", tuple((end, end * off) for end in ends), dashed=True) for off in (0.8, 1.2)]
    for held_out, tone, word in ((False, "c6", "fitted"), (True, "c2", "held out")):
        for met, mark, state in _STATES:
            chosen = (calibration.held_out == held_out) & (calibration.overlapping == met)
            dots = tuple(Dot(*point) for point in zip(x[chosen].tolist(), y[chosen].tolist(), strict=True))
            layers.append(Dots(f"{word}, {state} ({len(dots)})", tone, dots, mark))
    return Chart(
        "observed_vs_modelled_ttft",
        f"Modelled against observed TTFT, model '{calibration.rung}'",
        f"Held out: median absolute error {scores.mdape:.1%} ({scores.requests} requests). Dashed: 20 % off.",
        log_axis("observed TTFT, ms (log)", ends, "{:,.4g}".format),
        log_axis("modelled TTFT, ms (log)", ends, "{:,.4g}".format),
        tuple(layers),
        DataTable((), ()),
    )
