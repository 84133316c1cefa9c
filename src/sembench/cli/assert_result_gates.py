"""``kvmend bench assert-result-gates``: exit 0 only if every requested gate is measured and met.

A terminal gets a verdict for people. A pipe or file gets JSON, as scripts expect; so does ``--json``.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from sembase.command_line import ExitCode, existing_file
from sembase.files import replace_atomically
from sembase.streams import write_out
from sembase.values import positive
from sembench.cli.output import add_floor_argument, require_other_file, require_writable
from sembench.console.verdict import COLUMNS, MIN_COLUMNS, verdict_text
from sembench.gates.calibration import read_noise_floor
from sembench.gates.engine_summary import read_engine_summaries
from sembench.gates.judge import judge
from sembench.gates.manifest_match import match_manifest
from sembench.gates.other_run import OtherRun
from sembench.gates.request import GateRequest
from sembench.gates.table import GATES, Relation
from sembench.result import read_result

NAME: Final = "assert-result-gates"
SUMMARY: Final = (
    "Judge a result. It fails if a requested gate has no metric, if an aggregate does not follow from the rows, or "
    "if a measured figure that must be zero is not."
)


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--output", type=Path, metavar="FILE", help="write the verdict as JSON; stdout then gets the text for people"
    )
    command.add_argument(
        "--json", action="store_true", help="print JSON on a terminal too (default: only into a pipe or file)"
    )
    command.add_argument("--result", required=True, type=existing_file, metavar="FILE", help="a result of a runner")
    command.add_argument(
        "--engine-summary",
        action="append",
        default=[],
        type=existing_file,
        metavar="FILE",
        help="an engine summary; may be repeated: events of a log and of a stream are joined per request, never summed",
    )
    command.add_argument(
        "--manifest",
        type=existing_file,
        metavar="FILE",
        help="the result's manifest: every item must have a matching row (without it, missing rows go unnoticed)",
    )
    command.add_argument(
        "--stock-result",
        type=existing_file,
        metavar="FILE",
        help="a live result of the same manifest from a server without connector, for --max-cold-arm-overhead",
    )
    add_floor_argument(command)
    groups = {
        Relation.AT_LEAST: command.add_argument_group("at least"),
        Relation.AT_MOST: command.add_argument_group("at most"),
        Relation.REQUIRED: command.add_argument_group("required"),
    }
    groups[Relation.NEAR_ONE] = groups[Relation.AT_MOST]
    for gate in GATES:
        if (unit := gate.unit) is not None:
            groups[gate.relation].add_argument(gate.flag, type=unit.parse, metavar=unit.value, help=gate.help)
    groups[Relation.AT_MOST].add_argument(
        "--noise-floor-calibration",
        type=existing_file,
        metavar="FILE",
        help="--max-warm-vs-cold-kl applies above this noise floor; a speedup within its TTFT spread does not count",
    )
    for gate in GATES:
        if gate.unit is None:
            groups[gate.relation].add_argument(gate.flag, action="store_true", help=gate.help)
    manner = command.add_argument_group("how to judge")
    manner.add_argument(
        "--judge-interval",
        action="store_true",
        help="compare the unfavourable end of a speedup's 95 %% interval with its limit (default: the median)",
    )
    manner.add_argument(
        "--min-n",
        type=positive,
        default=1,
        metavar="N",
        help="minimum number of requests behind a requested rate, median or mean (default: 1)",
    )
    manner.add_argument(
        "--allow-partial-manifest", action="store_true", help="accept a run of only the manifest's first items"
    )
    manner.add_argument(
        "--allow-missing", action="store_true", help="let a requested gate pass if its metric is missing"
    )


def execute(options: argparse.Namespace) -> ExitCode:
    if options.output is not None:
        require_writable(options.output)
        for given in (
            *(options.result, options.manifest, options.stock_result, options.floor_result),
            *options.engine_summary,
        ):
            if given is not None:
                require_other_file(options.output, given, "an input")
    result, rows = read_result(options.result)
    engine = read_engine_summaries(options.engine_summary) if options.engine_summary else None
    limits = {gate.name: getattr(options, gate.name) for gate in GATES}
    manner = {name: getattr(options, name) for name in ("allow_missing", "judge_interval", "min_n")}
    request = GateRequest.of(**limits, **manner)
    floor = read_noise_floor(options.noise_floor_calibration) if options.noise_floor_calibration else None
    stock, again = (
        OtherRun(*read_result(path)) if path else None for path in (options.stock_result, options.floor_result)
    )
    verdict = judge(result, rows, engine, request, floor, stock, again)
    checked = ["aggregates follow from rows"]
    if result["paired"] is not None:
        checked.append("pairs follow from rows")
    if options.manifest is not None:
        match = match_manifest(options.manifest, result, rows, allow_partial=options.allow_partial_manifest)
        verdict.failures += match.failures
        verdict.observed["manifest_items"] = {"asked": match.asked, "of": match.items}
        checked.append(f"rows are the manifest's items ({match.asked} of {match.items})")
    report = {
        "result": str(options.result),
        "result_sha256": _sha256(options.result),
        "engine_summaries": [str(path) for path in options.engine_summary],
        "stock_result": None if options.stock_result is None else str(options.stock_result),
        "floor_result": None if options.floor_result is None else str(options.floor_result),
        "evidence": result["run"].get("evidence"),
        "passed": verdict.passed,
        "failures": verdict.failures,
        "checked": [*checked, *verdict.checked],
        "gates": verdict.gates_as_json(),
        "observed": verdict.observed,
        "requested_gates": dict(request.requested),
        "missing_metrics": verdict.missing,
        "judge_interval": request.judge_interval,
        "min_n": request.min_n,
        "allow_missing": request.allow_missing,
    }
    _print(report, options)
    return ExitCode.OK if verdict.passed else ExitCode.GATE_FAILED


def _print(report: Mapping[str, Any], options: argparse.Namespace) -> None:
    """Scripts written before ``--output`` read JSON from a pipe: that stays."""
    as_json = json.dumps(report, indent=2, ensure_ascii=False) + "\n"
    if options.output is not None:
        with replace_atomically(options.output) as stream:
            stream.write(as_json.encode())
    if options.json or (options.output is None and not sys.stdout.isatty()):
        write_out(as_json)
        return
    columns = min(COLUMNS, shutil.get_terminal_size().columns) if sys.stdout.isatty() else COLUMNS
    write_out(verdict_text(report, max(MIN_COLUMNS, columns)))
    if options.output is not None:
        write_out(f"verdict as JSON: {options.output}\n")


def _sha256(path: Path) -> str:
    """Lets a report match a verdict with its result independently of file names."""
    return hashlib.sha256(path.read_bytes()).hexdigest()
