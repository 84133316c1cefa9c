"""``kvmend simulate serve``: the simulator as an HTTP service, until it is interrupted."""

from __future__ import annotations

import argparse
from typing import Final

from semantic_kv.api import ServiceSettings, serve
from semantic_kv.cache.result import CACHE_MODELS, UNITS
from semantic_kv.cli.arguments import policy
from semantic_kv.experiment.config import BASELINE, PolicyChoice
from sembase.command_line import ExitCode, existing_file
from sembase.latency import LatencyModel, read_latency_model
from sembase.streams import write_err
from sembase.values import capacity, positive

NAME: Final = "serve"
SUMMARY: Final = (
    "Serve the simulator over HTTP with OpenAPI (extra: service). No authentication; binds to localhost by default."
)
EXAMPLES: Final = """\
  kvmend simulate serve
  kvmend simulate serve --port 8010 --capacity 200k --policy s3fifo --latency-model calibration/calibration.json"""


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--host", default="127.0.0.1", metavar="ADDRESS", help="address to listen on (default: %(default)s)"
    )
    command.add_argument(
        "--port", type=positive, default=8030, metavar="N", help="port to listen on (default: %(default)s)"
    )
    command.add_argument(
        "--capacity",
        type=capacity,
        default=100_000,
        metavar="N",
        help="capacity of the simulated cache (default: %(default)s)",
    )
    command.add_argument("--unit", choices=UNITS, default="tokens", help="unit of the capacity (default: %(default)s)")
    command.add_argument(
        "--model", choices=CACHE_MODELS, default="prefix_tree", help="cache model (default: %(default)s)"
    )
    command.add_argument(
        "--policy",
        type=policy,
        default=PolicyChoice(BASELINE),
        metavar="EVICT[+ADMIT]",
        help="policy of the cache (default: lru)",
    )
    command.add_argument(
        "--latency-model",
        type=existing_file,
        metavar="FILE",
        help="calibration.json of kvmend simulate calibrate (default: built-in coefficients)",
    )


def execute(options: argparse.Namespace) -> ExitCode:
    latency = read_latency_model(options.latency_model)[0] if options.latency_model else LatencyModel()
    settings = ServiceSettings(
        capacity=options.capacity,
        unit=options.unit,
        model=options.model,
        evict=options.policy.evict,
        admit=options.policy.admit,
        latency=latency,
    )
    message = f"kvmend simulate: serving on http://{options.host}:{options.port} (documentation at /docs)\n"
    serve(settings, host=options.host, port=options.port, announce=lambda: write_err(message))
    return ExitCode.OK
