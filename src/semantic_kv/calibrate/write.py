"""Records or columns in, a calibration out; a calibration in, its JSON and Markdown out."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from semantic_kv.calibrate.fit import FitOptions, calibrate
from semantic_kv.calibrate.observations import observations_from_records, observations_from_trace
from semantic_kv.calibrate.result import Calibration
from sembase.errors import ConfigurationError
from sembase.trace.columns import BlockTrace
from sembase.trace.record import TraceRecord

FILES: Final = ("calibration.json", "calibration.md")


def calibrate_records(
    records: Iterable[TraceRecord], *, name: str = "trace", options: FitOptions | None = None
) -> Calibration:
    return calibrate(observations_from_records(records, name), options)


def calibrate_trace(trace: BlockTrace, options: FitOptions | None = None) -> Calibration:
    return calibrate(observations_from_trace(trace), options)


def write_calibration(calibration: Calibration, directory: Path) -> list[Path]:
    """Returns the files written."""
    texts = (json.dumps(calibration.as_record(), indent=1) + "\n", summarize(calibration))
    paths = [directory / name for name in FILES]
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for path, text in zip(paths, texts, strict=True):
            path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(f"--output-dir {directory}: cannot be written: {error.strerror or error}") from None
    return paths


def summarize(calibration: Calibration) -> str:
    """Markdown, also readable as plain text."""
    scores, fitted = calibration.tested, calibration.fitted
    kind = "alone on the server" if calibration.engine is None else "in the queue of one engine"
    r2 = "-" if scores.r2 is None else f"{scores.r2:.2f}"
    lines = [
        f"# Calibration on {calibration.trace}",
        "",
        f"On the latest {scores.requests} of {scores.requests + fitted.requests} requests, held out: median absolute "
        f"error {scores.mdape:.1%}, 90th percentile {scores.p90_ape:.1%}, within 20 % {scores.within_20_percent}/"
        f"{scores.requests}, r2 {r2}, residuals {scores.residual_ms_p10:+.0f} / "
        f"{scores.residual_ms_p50:+.0f} / {scores.residual_ms_p90:+.0f} ms (p10 / p50 / p90). On the fitted ones: "
        f"{fitted.mdape:.1%}.",
        f"Each request is modelled as {kind}, from arrivals and token counts; observed times of held-out requests are "
        "not used.",
        "",
        "| coefficient | value |",
        "|---|---|",
        *(f"| {name} | {getattr(calibration.model, name):.4g} |" for name in calibration.fit.terms),
    ]
    skipped = [f"- {count} requests skipped: {reason}" for reason, count in calibration.skipped.items()]
    notes = [*skipped, *(f"- {note}" for note in calibration.notes)]
    return "\n".join([*lines, *(["", *notes] if notes else [])]) + "\n"
