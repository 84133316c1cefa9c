"""Fit the latency model to a collected trace, test it on later requests, and write the results.

For the command line (``kvmend simulate calibrate``) and notebooks:

- ``calibrate_records(records, name=..., options=FitOptions(...)) -> Calibration`` from ``semantic_kv.trace.v1``
  records, ``calibrate_trace(block_trace, options)`` from columns. Both raise ``ContractError`` (one line: what to
  collect) if the trace is too small or too uniform; they never fall back to default coefficients.
- ``write_calibration(calibration, directory) -> list[Path]``: ``calibration.json`` and ``calibration.md``.
- ``summarize(calibration) -> str``: the text to print. ``calibration.held_out_mdape``: the error to judge the fit by.
- ``read_latency_model(path) -> (LatencyModel, Engine | None)``: a written calibration, for replays and the service.
"""

from semantic_kv.calibrate.fit import FitOptions, calibrate
from semantic_kv.calibrate.observations import Observations, observations_from_records, observations_from_trace
from semantic_kv.calibrate.result import Calibration, Scores
from semantic_kv.calibrate.write import FILES, calibrate_records, calibrate_trace, summarize, write_calibration
from sembase.latency import read_latency_model

__all__ = [
    "FILES",
    "Calibration",
    "FitOptions",
    "Observations",
    "Scores",
    "calibrate",
    "calibrate_records",
    "calibrate_trace",
    "observations_from_records",
    "observations_from_trace",
    "read_latency_model",
    "summarize",
    "write_calibration",
]
