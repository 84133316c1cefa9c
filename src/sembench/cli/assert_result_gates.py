"""``sembench assert-result-gates``: exit 0 only if every requested gate is measured and met."""

from __future__ import annotations

import argparse
import json
from dataclasses import fields
from typing import Final

from sembench.cli.arguments import count, existing_file, number, share
from sembench.cli.exit_codes import ExitCode
from sembench.gates.calibration import read_noise_floor_kl
from sembench.gates.engine_summary import read_engine_summaries
from sembench.gates.request import GateRequest
from sembench.gates.verdict import judge
from sembench.result import read_result
from sembench.streams import write_out

NAME: Final = "assert-result-gates"
SUMMARY: Final = (
    "Judge a result: a requested gate whose metric is missing fails, and so do an aggregate its rows do not give and "
    "any measured figure that must be zero."
)


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("--result", required=True, type=existing_file, metavar="FILE", help="a result of a runner")
    command.add_argument(
        "--engine-summary",
        action="append",
        default=[],
        type=existing_file,
        metavar="FILE",
        help="an engine summary; may be repeated: counts are summed, hits and materializations joined per request",
    )
    at_least = command.add_argument_group("at least")
    at_least.add_argument(
        "--min-quality-pass-rate", type=share, metavar="SHARE", help="answers that keep their quality"
    )
    at_least.add_argument(
        "--min-semantic-placement-rate", type=share, metavar="SHARE", help="requests placed by resemblance"
    )
    at_least.add_argument(
        "--min-backend-confirmed-block-rate", type=share, metavar="SHARE", help="blocks the backend confirmed"
    )
    at_least.add_argument(
        "--min-semantic-eligible-lift", type=share, metavar="SHARE", help="eligible blocks beyond exact ones (a plan)"
    )
    at_least.add_argument(
        "--min-any-position-token-rate", type=share, metavar="SHARE", help="tokens seen before at any position"
    )
    at_least.add_argument("--min-materialization-events", type=count, metavar="N", help="over all engine summaries")
    at_least.add_argument("--min-materialized-tokens", type=count, metavar="N", help="over all engine summaries")
    at_least.add_argument("--min-materialized-units", type=count, metavar="N", help="over all engine summaries")
    at_least.add_argument(
        "--min-blended-ttft-speedup", type=number, metavar="RATIO", help="median over all clean pairs, not hits only"
    )
    at_most = command.add_argument_group("at most")
    at_most.add_argument(
        "--max-negative-control-confirmed-rate",
        type=share,
        metavar="SHARE",
        help="always on when measured (default: 0.0)",
    )
    at_most.add_argument(
        "--max-negative-control-speedup-deviation",
        type=number,
        metavar="RATIO",
        help="how far the negatives' median may be from 1",
    )
    at_most.add_argument(
        "--max-warm-vs-cold-kl", type=number, metavar="NATS", help="mean KL over the union of top-k log-probabilities"
    )
    at_most.add_argument(
        "--noise-floor-calibration",
        type=existing_file,
        metavar="FILE",
        help="count --max-warm-vs-cold-kl from this noise floor",
    )
    required = command.add_argument_group("required")
    required.add_argument(
        "--require-materialized-reuse",
        action="store_true",
        help="a request of this live result with a semantic hit and a materialization",
    )
    required.add_argument("--require-no-engine-errors", action="store_true", help="no error line in any engine summary")
    required.add_argument(
        "--require-contamination-check", action="store_true", help="every cold arm checked, contaminated pairs excluded"
    )
    command.add_argument("--allow-missing", action="store_true", help="a requested gate whose metric is missing passes")


def execute(options: argparse.Namespace) -> ExitCode:
    result, rows = read_result(options.result)
    engine = read_engine_summaries(options.engine_summary) if options.engine_summary else None
    request = GateRequest(**{f.name: getattr(options, f.name) for f in fields(GateRequest)})
    floor = read_noise_floor_kl(options.noise_floor_calibration) if options.noise_floor_calibration else None
    verdict = judge(result, rows, engine, request, floor)
    if options.noise_floor_calibration and floor is None and not request.allow_missing:
        verdict.failures.append("noise_floor_calibration: the calibration holds no mean_kl_topk")
    report = {
        "result": str(options.result),
        "engine_summaries": [str(path) for path in options.engine_summary],
        "evidence": result["run"].get("evidence"),
        "passed": verdict.passed,
        "failures": verdict.failures,
        "checked": ["aggregates follow from rows", *verdict.checked],
        "observed": verdict.observed,
        "requested_gates": request.requested(),
        "missing_metrics": verdict.missing,
        "allow_missing": request.allow_missing,
    }
    write_out(json.dumps(report, indent=2, ensure_ascii=False) + "\n")
    return ExitCode.OK if verdict.passed else ExitCode.GATE_FAILED
