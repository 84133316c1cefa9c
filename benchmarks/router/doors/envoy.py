"""Envoy as ``deploy/envoy`` configures it, on loopback: writes the configuration and becomes Envoy.

Run by ``benchmarks.router.doors``: ``python -m benchmarks.router.doors.envoy --port P --door cheap --engines 1,2``.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from pathlib import Path

from scripts.engines.fronts import binary_of, environment_of
from tests.fakes.picker_rig import Door, envoy_config, filters_of

ALONE = "alone"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--door", required=True, help="full duplex, cheap, or alone: without a picker")
    parser.add_argument("--engines", required=True, help="ports, separated by commas")
    parser.add_argument("--picker", type=int, default=1, help="port of the picker's door")
    chosen = parser.parse_args()
    binary = binary_of("envoy")
    if binary is None:
        raise SystemExit("Envoy is not installed; run python -m scripts.engines.fronts")
    engines = [int(port) for port in chosen.engines.split(",")]
    door: Door = "cheap" if chosen.door == ALONE else chosen.door
    config = envoy_config(door, listen=chosen.port, engines=engines, picker=chosen.picker)
    if chosen.door == ALONE:
        del filters_of(config)[0]
    path = Path(tempfile.mkdtemp()) / "envoy.json"
    path.write_text(json.dumps(config))
    options = ("--use-dynamic-base-id", "--concurrency", "1", "--log-level", "error")
    os.execve(binary, [str(binary), "-c", str(path), *options], {**os.environ, **environment_of("envoy")})


if __name__ == "__main__":
    raise SystemExit(main())
