"""The steps that the end-to-end runs of all engines share: build, summarize, judge, draw, and the figures to quote."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from scripts.data.folder import TEXTS

from benchmarks.console import progress
from benchmarks.targets import Verdict

DATASETS = ("musique_s", "multi_news", "multidoc_qa")
NOISE_ITEMS = 8
GATES = (
    *("--require-materialized-reuse", "--require-joined-evidence", "--require-no-engine-errors"),
    *("--require-contamination-check", "--max-failed-pair-rate", "0", "--max-negative-control-confirmed-rate", "0"),
    *("--max-warm-vs-cold-kl", "0.05", "--min-blended-ttft-speedup", "1.2"),
    *("--max-negative-control-speedup-deviation", "0.15"),
)


def add_arguments(parser: argparse.ArgumentParser, records: int, datasets: tuple[str, ...] = DATASETS) -> None:
    parser.add_argument(
        "--records",
        type=int,
        default=records,
        help=f"source records per dataset (default: {records}; 13 or 14 items each)",
    )
    parser.add_argument(
        "--datasets", nargs="+", choices=DATASETS, default=datasets, help=f"default: {' '.join(datasets)}"
    )
    parser.add_argument("--max-items", type=int, help="the first items only, for a quick look")
    parser.add_argument("--texts", type=Path, default=TEXTS, help="folder of the real texts")
    parser.add_argument("--resume", action="store_true", help="continue an interrupted replay")
    parser.add_argument("--seed", type=int, default=0)


def build(arguments: argparse.Namespace, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    manifest = folder / "manifest.jsonl"
    sembench(
        "build",
        *("--profile", "jsonl", "--data-dir", str(arguments.texts), "--datasets", *arguments.datasets),
        *("--max-items-per-dataset", str(arguments.records), "--output", str(manifest), "--seed", str(arguments.seed)),
    )
    return manifest


def summarize(engine: str, folder: Path, events: Path | None, log: Path) -> list[Path]:
    summaries = [folder / "engine-log.json"]
    sembench("summarize-engine-events", "--engine", engine, "--input", str(log), "--output", str(summaries[0]))
    if events is not None:
        summaries.append(folder / "engine-events.json")
        sembench(
            "summarize-engine-events", "--engine", "semblend", "--input", str(events), "--output", str(summaries[1])
        )
    return summaries


def draw(folder: Path, summaries: list[Path]) -> None:
    sembench(
        "report",
        str(folder / "result.json"),
        *("--html", str(folder / "report.html"), "--gates", str(folder / "verdict.json")),
        *("--noise-floor", str(folder / "noise.json"), *_each("--engine-summary", summaries)),
    )


def expected(name: str, *, passes: bool, passed: bool) -> Verdict:
    return Verdict(f"{name}: the gates {'pass' if passes else 'reject'} it", "==", 1, int(passed is passes))


def gates_of(folder: Path, summaries: list[Path], *, partial: bool) -> tuple[str, ...]:
    """The gates of a replay with its noise floor and the engine's own account."""
    return (
        *GATES,
        *("--noise-floor-calibration", str(folder / "noise.json"), *_each("--engine-summary", summaries)),
        *(("--allow-partial-manifest",) if partial else ()),
    )


def judge(folder: Path, manifest: Path, gates: tuple[str, ...]) -> bool:
    """Apply the gates to ``result.json`` of the folder, keep the verdict there and print what failed."""
    verdict = folder / "verdict.json"
    verdict.unlink(missing_ok=True)
    command = ("assert-result-gates", "--result", str(folder / "result.json"), "--manifest", str(manifest), *gates)
    done = subprocess.run(
        [sys.executable, "-m", "sembench", *command, "--output", str(verdict)],
        capture_output=True,
        text=True,
        check=False,
    )
    if not verdict.exists():
        raise SystemExit(f"sembench {command[0]} gave no verdict: {done.stderr.strip()}")
    for failure in json.loads(verdict.read_text())["failures"]:
        progress(f"gate: {failure}")
    return done.returncode == 0


def figures(name: str, result: dict[str, Any]) -> float | None:
    """Print the headline figures; return the lower end of the blended speedup's interval."""
    paired, parts = result["paired"], result["aggregate"]["parts"]
    low, high = paired["blended_ttft_speedup_ci95"] or (None, None)
    progress(
        f"{name}: blended {paired['blended_ttft_speedup_median']} [{low}, {high}] "
        f"n={paired['blended_ttft_speedup_n']}, hit-only {paired['hit_only_ttft_speedup_median']} "
        f"n={paired['hit_only_ttft_speedup_n']}, KL {paired['warm_vs_cold_mean_kl_topk']}, clean pairs "
        f"{paired['clean_pairs']} of {paired['pairs']}"
    )
    made_of = parts["negative_control_backend_confirmed_rate"]
    progress(f"{name}: negative controls confirmed: {made_of['numerator']} of {made_of['denominator']} blocks")
    return low


def _each(option: str, paths: list[Path]) -> list[str]:
    return [word for path in paths for word in (option, str(path))]


def sembench(*command: str) -> None:
    progress(f"sembench {command[0]}")
    ended = subprocess.run([sys.executable, "-m", "sembench", *command], check=False).returncode
    if ended:
        raise SystemExit(
            f"sembench {command[0]} ended with {ended}; what was measured is kept: run again with --resume"
        )
