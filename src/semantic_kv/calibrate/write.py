"""The doors of the command line: records or columns in, a calibration out; a calibration in, its files out."""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from semantic_kv.calibrate.fit import FitOptions, calibrate
from semantic_kv.calibrate.observations import observations_from_records, observations_from_trace
from semantic_kv.calibrate.plot import scatter_png
from semantic_kv.calibrate.result import Calibration
from semantic_kv.calibrate.summary import summarize
from sembase.errors import ConfigurationError, MissingDependencyError
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
    """What was written. Without matplotlib there is no picture, and the list does not name one."""
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
