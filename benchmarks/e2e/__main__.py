"""From real texts to a judged report on a real vLLM server, by the commands a user has.

Build, calibrate the noise floor, replay cold beside warm, summarize the events of the engine, judge, draw. The arms
``broken`` and ``off`` must be refused by the gates.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from scripts.engines.server import EngineServer
from scripts.engines.specs import vllm_missing

from benchmarks.console import RESULTS, progress, show_verdicts
from benchmarks.corpus import TOKENIZER
from benchmarks.documents import ROOT
from benchmarks.e2e.arms import ARMS, TOP_LOGPROBS, Arm, serving
from benchmarks.targets import Verdict

TEXTS = ROOT.parent / "shared" / "data" / "text"
DATASETS = ("musique_s", "multi_news", "multidoc_qa")
BLOCK_TOKENS = 128
NOISE_ITEMS = 8
EXACT_RESET = "/reset_prefix_cache"
FULL_RESET = "/reset_prefix_cache?reset_external=true"
GATES = (
    *("--require-materialized-reuse", "--require-joined-evidence", "--require-no-engine-errors"),
    *("--require-contamination-check", "--max-failed-pair-rate", "0", "--max-negative-control-confirmed-rate", "0"),
    *("--max-warm-vs-cold-kl", "0.05", "--min-blended-ttft-speedup", "1.2"),
    *("--max-negative-control-speedup-deviation", "0.15"),
)


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
    parser.add_argument("--records", type=int, default=3, help="source records per dataset (13 or 14 items each)")
    parser.add_argument("--max-items", type=int, help="the first items only, for a quick look")
    parser.add_argument("--texts", type=Path, default=TEXTS, help="folder of the real texts")
    parser.add_argument("--resume", action="store_true", help="go on with an interrupted replay")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def _run(arm: Arm, arguments: argparse.Namespace) -> list[Verdict]:
    started = time.monotonic()
    folder = RESULTS / f"e2e-{arm.name}"
    folder.mkdir(parents=True, exist_ok=True)
    manifest = folder / "manifest.jsonl"
    _sembench(
        "build",
        *("--profile", "jsonl", "--data-dir", str(arguments.texts), "--datasets", *DATASETS),
        *("--max-items-per-dataset", str(arguments.records), "--output", str(manifest), "--seed", str(arguments.seed)),
    )
    events = folder / "events.jsonl"
    with serving(arm, events) as server:
        progress(f"{arm.name}: server ready after {server.startup_s:.0f} s")
        _measure(arm, arguments, server, manifest, events, folder)
        # Copied while it serves: what an engine complains about when it is ended is no error of the run.
        log = Path(shutil.copy(server.log_path, folder / "engine.log"))
    summaries = _summarize(arm, folder, events, log)
    passed = _judge(folder, manifest, summaries, partial=arguments.max_items is not None)
    _sembench(
        "report",
        str(folder / "result.json"),
        *("--html", str(folder / "report.html"), "--gates", str(folder / "verdict.json")),
        *("--noise-floor", str(folder / "noise.json"), *_each("--engine-summary", summaries)),
    )
    minutes = (time.monotonic() - started) / 60
    progress(f"{arm.name}: report in {(folder / 'report.html').relative_to(ROOT)} after {minutes:.1f} minutes")
    result = json.loads((folder / "result.json").read_text())
    return [_expected(arm, passed), *_figures(arm, result, minutes)]


def _measure(
    arm: Arm, arguments: argparse.Namespace, server: EngineServer, manifest: Path, events: Path, folder: Path
) -> None:
    target = ("--gateway-url", server.base_url, "--endpoint", "completions", "--block-size", str(BLOCK_TOKENS))
    probabilities = ("--capture-logprobs", str(TOP_LOGPROBS))
    limit = ("--max-items", str(arguments.max_items)) if arguments.max_items else ()
    reset = FULL_RESET if arm.has_events else EXACT_RESET
    _sembench(
        "calibrate-noise-floor",
        *("--manifest", str(manifest), "--output", str(folder / "noise.json"), *target, *probabilities),
        *("--reset-url", reset, "--max-items", str(min(NOISE_ITEMS, arguments.max_items or NOISE_ITEMS))),
    )
    audit = ("--connector-audit", str(events), "--check-propagation", "0.1") if arm.has_events else ()
    _sembench(
        "run-live-gateway",
        *("--manifest", str(manifest), "--output", str(folder / "result.json"), *target, *probabilities, *limit),
        *("--paired", "--reset-url", reset, "--recipient-reset-url", EXACT_RESET, *audit),
        *("--tokenizer", str(TOKENIZER), "--metrics-url", f"{server.base_url}/metrics", "--seed", str(arguments.seed)),
        *(("--resume",) if arguments.resume else ()),
    )


def _summarize(arm: Arm, folder: Path, events: Path, log: Path) -> list[Path]:
    summaries = [folder / "engine-log.json"]
    _sembench("summarize-engine-events", "--engine", "vllm", "--input", str(log), "--output", str(summaries[0]))
    if arm.has_events:
        summaries.append(folder / "engine-events.json")
        _sembench(
            "summarize-engine-events", "--engine", "semblend", "--input", str(events), "--output", str(summaries[1])
        )
    return summaries


def _judge(folder: Path, manifest: Path, summaries: list[Path], *, partial: bool) -> bool:
    command = (
        *("assert-result-gates", "--result", str(folder / "result.json"), "--manifest", str(manifest), *GATES),
        *("--noise-floor-calibration", str(folder / "noise.json"), *_each("--engine-summary", summaries)),
        *(("--allow-partial-manifest",) if partial else ()),
    )
    done = subprocess.run([sys.executable, "-m", "sembench", *command], capture_output=True, text=True, check=False)
    (folder / "verdict.json").write_text(done.stdout)
    verdict = json.loads(done.stdout)
    for failure in verdict["failures"]:
        progress(f"gate: {failure}")
    return done.returncode == 0


def _expected(arm: Arm, passed: bool) -> Verdict:
    return Verdict(f"{arm.name}: the gates {'pass' if arm.passes else 'refuse'} it", "==", 1, int(passed is arm.passes))


def _figures(arm: Arm, result: dict[str, Any], minutes: float) -> list[Verdict]:
    paired, figures, parts = result["paired"], result["aggregate"], result["aggregate"]["parts"]
    low, high = paired["blended_ttft_speedup_ci95"] or (None, None)
    progress(
        f"{arm.name}: blended {paired['blended_ttft_speedup_median']} [{low}, {high}] "
        f"n={paired['blended_ttft_speedup_n']}, hit-only {paired['hit_only_ttft_speedup_median']} "
        f"n={paired['hit_only_ttft_speedup_n']}, KL {paired['warm_vs_cold_mean_kl_topk']}, clean pairs "
        f"{paired['clean_pairs']} of {paired['pairs']}"
    )
    confirmed = figures["negative_control_backend_confirmed_rate"]
    made_of = parts["negative_control_backend_confirmed_rate"]
    progress(f"{arm.name}: negative controls confirmed: {made_of['numerator']} of {made_of['denominator']} blocks")
    if arm.name == "on":
        return [
            Verdict("on: items", ">=", 120, result["run"]["items"]),
            Verdict("on: minutes", "<=", 25, minutes, "min"),
            Verdict("on: negative controls confirmed", "==", 0, confirmed, is_law=True),
        ]
    if arm.name == "off":
        return [Verdict("off: speedup, lower end of its interval", "<=", 1.05, low)]
    return []


def _each(option: str, paths: list[Path]) -> list[str]:
    return [word for path in paths for word in (option, str(path))]


def _sembench(*command: str) -> None:
    progress(f"sembench {command[0]}")
    ended = subprocess.run([sys.executable, "-m", "sembench", *command], check=False).returncode
    if ended:
        raise SystemExit(
            f"sembench {command[0]} ended with {ended}; what was measured is kept: run again with --resume"
        )


if __name__ == "__main__":
    raise SystemExit(main())
