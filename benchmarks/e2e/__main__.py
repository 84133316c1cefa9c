"""From real texts to a judged report on a real vLLM server, with the commands a user has.

Build, calibrate the noise floor, replay cold and warm, summarize the events of the engine, judge, draw. The arms
``broken`` and ``off`` must be rejected by the gates.
"""

from __future__ import annotations

import argparse
import json
import shutil
import time
from pathlib import Path

from scripts.engines.server import EngineServer
from scripts.engines.specs import vllm_missing

from benchmarks.console import RESULTS, progress, show_verdicts
from benchmarks.corpus import TOKENIZER
from benchmarks.documents import ROOT
from benchmarks.e2e import steps
from benchmarks.e2e.arms import ARMS, TOP_LOGPROBS, Arm, serving
from benchmarks.targets import Verdict

BLOCK_TOKENS = 128
EXACT_RESET = "/reset_prefix_cache"
FULL_RESET = "/reset_prefix_cache?reset_external=true"


def main() -> int:
    arguments = _parse()
    if (missing := vllm_missing()) is not None or not arguments.texts.is_dir():
        progress(f"nothing measured: {missing or f'no texts in {arguments.texts} (--texts FOLDER)'}")
        return 3
    verdicts = []
    for name in arguments.arms:
        verdicts += _run(ARMS[name], arguments)
    show_verdicts(verdicts)
    return 0 if all(verdict.holds for verdict in verdicts) else 1


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.e2e", description=__doc__)
    parser.add_argument("--arms", nargs="+", choices=sorted(ARMS), default=["on"], help="default: on")
    steps.add_arguments(parser, records=3)
    return parser.parse_args()


def _run(arm: Arm, arguments: argparse.Namespace) -> list[Verdict]:
    started = time.monotonic()
    folder = RESULTS / f"e2e-{arm.name}"
    manifest = steps.build(arguments, folder)
    events = folder / "events.jsonl"
    with serving(arm, events) as server:
        progress(f"{arm.name}: server ready after {server.startup_s:.0f} s")
        _measure(arm, arguments, server, manifest, events, folder)
        # Copied while it serves: messages of an engine that is being stopped are not errors of the run.
        log = Path(shutil.copy(server.log_path, folder / "engine.log"))
    summaries = steps.summarize("vllm", folder, events if arm.has_events else None, log)
    passed = steps.judge(folder, manifest, steps.gates_of(folder, summaries, partial=arguments.max_items is not None))
    steps.draw(folder, summaries)
    minutes = (time.monotonic() - started) / 60
    progress(f"{arm.name}: report in {(folder / 'report.html').relative_to(ROOT)} after {minutes:.1f} minutes")
    result = json.loads((folder / "result.json").read_text())
    low = steps.figures(arm.name, result)
    verdicts = [steps.expected(arm.name, passes=arm.passes, passed=passed)]
    if arm.name == "on":
        confirmed = result["aggregate"]["negative_control_backend_confirmed_rate"]
        verdicts += [
            Verdict("on: items", ">=", 120, result["run"]["items"]),
            Verdict("on: minutes", "<=", 25, minutes, "min"),
            Verdict("on: negative controls confirmed", "==", 0, confirmed, is_law=True),
        ]
    if arm.name == "off":
        verdicts.append(Verdict("off: speedup, lower end of its interval", "<=", 1.05, low))
    return verdicts


def _measure(
    arm: Arm, arguments: argparse.Namespace, server: EngineServer, manifest: Path, events: Path, folder: Path
) -> None:
    target = ("--gateway-url", server.base_url, "--endpoint", "completions", "--block-size", str(BLOCK_TOKENS))
    probabilities = ("--capture-logprobs", str(TOP_LOGPROBS))
    limit = ("--max-items", str(arguments.max_items)) if arguments.max_items else ()
    reset = FULL_RESET if arm.has_events else EXACT_RESET
    steps.sembench(
        "calibrate-noise-floor",
        *("--manifest", str(manifest), "--output", str(folder / "noise.json"), *target, *probabilities),
        *("--reset-url", reset, "--max-items", str(min(steps.NOISE_ITEMS, arguments.max_items or steps.NOISE_ITEMS))),
    )
    audit = ("--connector-audit", str(events), "--check-propagation", "0.1") if arm.has_events else ()
    steps.sembench(
        "run-live-gateway",
        *("--manifest", str(manifest), "--output", str(folder / "result.json"), *target, *probabilities, *limit),
        *("--paired", "--reset-url", reset, "--recipient-reset-url", EXACT_RESET, *audit),
        *("--tokenizer", str(TOKENIZER), "--metrics-url", f"{server.base_url}/metrics", "--seed", str(arguments.seed)),
        *(("--resume",) if arguments.resume else ()),
    )


if __name__ == "__main__":
    raise SystemExit(main())
