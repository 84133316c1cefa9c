"""From ``helm template`` to a validated set of manifests: the chart's examples in, seconds per step out.

``python -m benchmarks.router.chart [--rounds N]``. Rendering is helm's own process. Validation is strict, against the
schemas of Kubernetes that ``tests/contract/test_chart.py`` uses, custom resources left out as there.
"""

from __future__ import annotations

import argparse
import statistics
import time

import kubernetes_validate
import yaml
from tests.contract.test_chart import CUSTOM, KUBERNETES
from tests.fakes.chart import CHART, EXAMPLES, helm


def run(example: str) -> tuple[int, float, float]:
    """Manifests, seconds to render and parse them, seconds to validate them for every version."""
    started = time.monotonic()
    done = helm("template", "gw", str(CHART), "-f", str(CHART / "examples" / f"{example}.yaml"))
    if done.returncode:
        raise SystemExit(done.stderr)
    manifests = [each for each in yaml.safe_load_all(done.stdout) if each is not None]
    rendered = time.monotonic()
    for version in KUBERNETES:
        for each in manifests:
            if each["kind"] not in CUSTOM:
                kubernetes_validate.validate(each, version, strict=True)
    return len(manifests), rendered - started, time.monotonic() - rendered


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    versions = ", ".join(KUBERNETES)
    print(f"| example | manifests | helm template, s | validated for {versions}, s | together, s (min to max) |")
    print("|---|---|---|---|---|")
    for example in EXAMPLES:
        figures = [run(example) for _ in range(rounds)]
        whole = [render + check for _, render, check in figures]
        render, check = (statistics.median(each[place] for each in figures) for place in (1, 2))
        spread = f"{statistics.median(whole):.2f} ({min(whole):.2f} to {max(whole):.2f})"
        print(f"| `{example}.yaml` | {figures[0][0]} | {render:.2f} | {check:.2f} | {spread} |", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
