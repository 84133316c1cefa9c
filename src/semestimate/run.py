"""Options of the command in; the pass over the trace, the page and the summary out."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any, Final

from sembase.command_line import ExitCode
from sembase.errors import ConfigurationError
from sembase.files import replace_atomically
from sembase.latency import read_latency_model
from sembase.progress import Progress
from sembase.streams import write_err, write_out
from sembase.tokenizer import open_tokenizer
from sembase.trace.files import trace_name
from sembase.trace.locate import trace_files
from semestimate.analysis import Analysis
from semestimate.cost import Price, price_by, price_on
from semestimate.hardware import device_named, model_named
from semestimate.page import page_html
from semestimate.reading import ReadFraction
from semestimate.report import Estimate, estimate_of
from semestimate.request import Request, RequestReader
from semestimate.terminal import summary

_BETWEEN_CHECKS: Final = 64


def run(options: argparse.Namespace) -> ExitCode:
    price = _price(options)
    files = [file for named in options.traces for file in trace_files(named)]
    for output in (options.output, options.json):
        if output is not None and output.resolve() in {file.resolve() for file in files}:
            raise ConfigurationError(f"{output}: is one of the traces, which would be overwritten")
    tokenizer = open_tokenizer(options.tokenizer)
    requests = RequestReader(tokenizer).requests(options.traces, options.format)
    if options.max_requests is not None:
        requests = islice(requests, options.max_requests)
    started = time.monotonic()
    analysis = _analyse(requests, files, quiet=options.quiet)
    if not analysis.requests:
        raise ConfigurationError("the traces contain no requests")
    names = tuple(trace_name(named) for named in options.traces)
    estimate = estimate_of(analysis.figures(names, tokenizer.name), price)
    with replace_atomically(options.output) as stream:
        stream.write(page_html(estimate).encode())
    if options.json is not None:
        with replace_atomically(options.json) as stream:
            stream.write(json.dumps(as_record(estimate), indent=1).encode() + b"\n")
    write_out(summary(estimate))
    write_out(f"page: {options.output}\n")
    if not options.quiet:
        seconds = time.monotonic() - started
        write_err(f"{analysis.requests:,} requests in {seconds:,.1f} s\n")
    return ExitCode.OK


def as_record(estimate: Estimate) -> dict[str, Any]:
    return {
        "schema": "semblend.estimate.v1",
        "figures": asdict(estimate.figures),
        "price": asdict(estimate.price),
        "advice": [asdict(each) for each in estimate.advice],
        "verdict": {**asdict(estimate.verdict), "saved_share": estimate.verdict.saved_share},
    }


def _analyse(requests: Iterator[Request], files: list[Path], *, quiet: bool) -> Analysis:
    analysis, progress, fraction = Analysis(), Progress(quiet=quiet), ReadFraction(files)
    try:
        for request in requests:
            analysis.add(request)
            if analysis.requests % _BETWEEN_CHECKS == 0:
                progress.update(f"{analysis.requests:,} requests", fraction.now() if progress.is_due else None)
    finally:
        progress.finish()
    return analysis


def _price(options: argparse.Namespace) -> Price:
    if options.calibration is not None:
        return price_by(read_latency_model(options.calibration)[0], options.calibration.name, options.price)
    return price_on(device_named(options.gpu), model_named(options.model), options.price)
