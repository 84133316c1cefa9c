"""Options of the command in; the pass over the trace, the page and the summary out. Ctrl-C keeps what was counted."""

from __future__ import annotations

import argparse
import hashlib
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
from semestimate.checkpoint import read_checkpoint, save_checkpoint
from semestimate.cost import Price, price_by, price_on
from semestimate.hardware import device_named, model_named
from semestimate.page import page_html
from semestimate.reading import ReadFraction
from semestimate.report import Estimate, estimate_of
from semestimate.request import Request, RequestReader
from semestimate.terminal import summary

_CHECKPOINT_S: Final = 60.0
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
    checkpoint = options.output.with_name(options.output.name + ".checkpoint")
    started = time.monotonic()
    analysis = _analyse(requests, files, checkpoint, _identity(options, files), quiet=options.quiet)
    if not analysis.requests:
        raise ConfigurationError("the traces contain no requests")
    names = tuple(trace_name(named) for named in options.traces)
    estimate = estimate_of(analysis.figures(names, tokenizer.name), price)
    with replace_atomically(options.output) as stream:
        stream.write(page_html(estimate).encode())
    if options.json is not None:
        with replace_atomically(options.json) as stream:
            stream.write(json.dumps(as_record(estimate), indent=1).encode() + b"\n")
    checkpoint.unlink(missing_ok=True)
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


def _analyse(
    requests: Iterator[Request], files: list[Path], checkpoint: Path, identity: str, *, quiet: bool
) -> Analysis:
    """Continues from a checkpoint of the same traces; requests counted before are read again, but not analysed."""
    analysis = read_checkpoint(checkpoint, identity) or Analysis()
    skipped = analysis.requests
    if skipped and not quiet:
        write_err(f"continuing after {skipped:,} requests ({checkpoint.name})\n")
    progress, fraction = Progress(quiet=quiet), ReadFraction(files)
    saved = time.monotonic()
    read = 0
    try:
        for request in requests:
            read += 1
            if read > skipped:
                analysis.add(request)
            if read % _BETWEEN_CHECKS == 0:
                progress.update(f"{read:,} requests", fraction.now() if progress.is_due else None)
                if read > skipped and time.monotonic() - saved > _CHECKPOINT_S:
                    save_checkpoint(checkpoint, identity, analysis)
                    saved = time.monotonic()
    except KeyboardInterrupt:
        progress.finish()
        if analysis.requests > skipped:
            save_checkpoint(checkpoint, identity, analysis)
        write_err(f"{analysis.requests:,} requests are counted in {checkpoint}; the same command continues\n")
        raise
    progress.finish()
    return analysis


def _identity(options: argparse.Namespace, files: list[Path]) -> str:
    """Equal for the same files and options; files are compared by size and time, not read."""
    stats = [(str(file.resolve()), file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    given = (options.format, options.tokenizer, options.max_requests)
    return hashlib.sha256(repr((stats, given)).encode()).hexdigest()


def _price(options: argparse.Namespace) -> Price:
    if options.calibration is not None:
        return price_by(read_latency_model(options.calibration)[0], options.calibration.name, options.price)
    return price_on(device_named(options.gpu), model_named(options.model), options.price)
