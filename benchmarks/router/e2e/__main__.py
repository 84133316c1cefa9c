"""``make e2e-router``: six policies over two real vLLM servers with connector, KV events and donor events, in one run.

Each policy runs a locality-rich and a locality-free load, several rounds in an order drawn by the seed, with caches
emptied in between. Prints TTFT, exact cached tokens, confirmed reuse and routes by policy, checks the targets and
writes a Markdown report.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from scripts.data.folder import TEXTS
from scripts.engines.specs import vllm_missing

from benchmarks.console import RESULTS, exit_code, progress, show_table, show_verdicts, write_results
from benchmarks.documents import ROOT
from benchmarks.router.e2e.cells import (
    BLOCK_TOKENS,
    Replica,
    calibrate,
    empty_caches,
    measure,
    routing,
    serving,
    warm_up,
)
from benchmarks.router.e2e.figures import COLUMNS, POLICIES, Cell, cell_of, rows_of, verdicts_of, write_report
from benchmarks.router.e2e.load import free_items, rich_items
from sembench.manifest import write_manifest

FOLDER = RESULTS / "e2e-router"


def main() -> int:
    chosen = _parse()
    missing = vllm_missing()
    if missing is not None or not chosen.texts.is_dir():
        progress(f"nothing measured: {missing or f'no texts in {chosen.texts} (--texts FOLDER)'}")
        return 3
    started = time.monotonic()
    manifests = _prepare(chosen)
    with serving(FOLDER, chosen.cache_tokens, chosen.donor_tokens) as (replicas, key_file):
        progress(f"two servers are ready after {time.monotonic() - started:.0f} s")
        warm_up(replicas)
        _run(chosen, manifests, replicas, key_file, calibrate(replicas, FOLDER, chosen.seed))
    cells = _cells(chosen)
    minutes = (time.monotonic() - started) / 60
    return _report(chosen, cells, minutes)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.router.e2e", description=__doc__)
    parser.add_argument("--policies", nargs="+", choices=POLICIES, default=list(POLICIES))
    parser.add_argument("--sessions", type=int, default=16, help="of the rich load, a quarter of them agents'")
    parser.add_argument("--turns", type=int, default=8)
    parser.add_argument("--requests", type=int, default=20, help="of the free load")
    parser.add_argument("--tokens", type=int, default=1_400, help="of passages or agent input in a prompt")
    parser.add_argument("--active", type=int, default=4, help="requests of the rich load at a time")
    parser.add_argument("--free-active", type=int, default=2, help="requests of the free load at a time")
    parser.add_argument("--rich-rounds", type=int, default=1)
    parser.add_argument("--free-rounds", type=int, default=3)
    parser.add_argument("--cache-tokens", type=int, default=112 * BLOCK_TOKENS, help="KV cache of one server")
    parser.add_argument("--donor-tokens", type=int, default=13_000, help="donor store of one server")
    parser.add_argument("--texts", type=Path, default=TEXTS, help="folder of the real texts")
    parser.add_argument("--resume", action="store_true", help="keep what an interrupted run has measured")
    parser.add_argument("--enforce", action="store_true", help="fail if a target is missed")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def _prepare(chosen: argparse.Namespace) -> dict[str, Path]:
    """The manifests, and an empty folder unless the same run continues."""
    settings = {key: str(value) for key, value in vars(chosen).items() if key not in ("resume", "enforce", "policies")}
    noted = FOLDER / "settings.json"
    if not (chosen.resume and noted.is_file() and json.loads(noted.read_text()) == settings):
        if chosen.resume:
            progress("nothing to resume: there is no run with these settings")
        shutil.rmtree(FOLDER, ignore_errors=True)
        FOLDER.mkdir(parents=True)
        noted.write_text(json.dumps(settings))
    manifests = {load: FOLDER / f"{load}.jsonl" for load in ("rich", "free")}
    rich = rich_items(chosen.texts, chosen.sessions, chosen.turns, chosen.tokens, chosen.seed, lanes=chosen.active)
    write_manifest(manifests["rich"], rich)
    write_manifest(manifests["free"], free_items(chosen.texts, chosen.requests, chosen.tokens, chosen.seed))
    return manifests


def _order(chosen: argparse.Namespace) -> Iterator[tuple[str, str, int]]:
    """Loads alternate and policies are shuffled, so that a machine that slows down affects all alike."""
    for number in range(max(chosen.rich_rounds, chosen.free_rounds)):
        for load, rounds in (("rich", chosen.rich_rounds), ("free", chosen.free_rounds)):
            policies = list(chosen.policies)
            random.Random(f"{chosen.seed} {load} {number}").shuffle(policies)
            if number < rounds:
                yield from ((policy, load, number) for policy in policies)


def _output(policy: str, load: str, number: int) -> Path:
    return FOLDER / f"{load}-{number}-{policy}.json"


def _run(
    chosen: argparse.Namespace,
    manifests: Mapping[str, Path],
    replicas: list[Replica],
    key_file: Path,
    calibration: Path,
) -> None:
    todo = [step for step in _order(chosen) if not _output(*step).is_file()]
    for position, (policy, load, number) in enumerate(todo):
        empty_caches(replicas)
        started = time.monotonic()
        partial = _output(policy, load, number).with_suffix(".part")
        with routing(policy, replicas, key_file, calibration, FOLDER) as router:
            active = chosen.active if load == "rich" else chosen.free_active
            result = measure(router, replicas, manifests[load], partial, active, chosen.seed)
        seconds = time.monotonic() - started
        result["run"]["cell_seconds"] = seconds
        partial.unlink()
        _output(policy, load, number).write_text(json.dumps(result))
        cell = cell_of(policy, load, [result], seconds)
        progress(
            f"{position + 1} of {len(todo)}: {load} load, round {number + 1}, {policy}: mean TTFT "
            f"{cell.mean_ms or 0:.0f} ms, exact {cell.fraction(cell.exact_tokens):.0%}, "
            f"reuse {cell.fraction(cell.reused_tokens):.0%}, {seconds:.0f} s"
        )


def _cells(chosen: argparse.Namespace) -> dict[tuple[str, str], Cell]:
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for policy, load, number in _order(chosen):
        found.setdefault((policy, load), []).append(json.loads(_output(policy, load, number).read_text()))
    return {
        (policy, load): cell_of(policy, load, results, sum(result["run"]["cell_seconds"] for result in results))
        for (policy, load), results in found.items()
    }


def _report(chosen: argparse.Namespace, cells: Mapping[tuple[str, str], Cell], minutes: float) -> int:
    for load in ("rich", "free"):
        show_table(f"Locality-{load} load", COLUMNS, rows_of(cells, load))
    verdicts = verdicts_of(cells, minutes)
    show_verdicts(verdicts)
    about = [
        f"SmolLM2-135M on two vLLM servers, one core each, {chosen.cache_tokens} tokens of KV cache and "
        f"{chosen.donor_tokens} of donors per server; one router process per policy and round.",
        f"Rich: {chosen.sessions} sessions of {chosen.turns} turns (three quarters musique_s, every third turn after "
        f"another opening; one quarter agents), {chosen.active} requests at a time, all sessions interleaved: a server "
        f"holds half of them, not all. Free: {chosen.requests} prompts that share "
        f"nothing, {chosen.free_active} at a time. About {chosen.tokens} tokens per prompt, seed {chosen.seed}.",
        "Exact cached tokens and confirmed reuse are reported by the engines and joined to each reply. The order of "
        "policies is drawn per round; caches are emptied in between.",
    ]
    write_report(FOLDER / "report.md", cells, verdicts, about)
    record = {
        "settings": {key: str(value) for key, value in vars(chosen).items()},
        "minutes": minutes,
        "cells": [cell.as_record() for cell in cells.values()],
        "verdicts": [verdict.as_record() for verdict in verdicts],
    }
    write_results("e2e-router", record)
    progress(f"report in {(FOLDER / 'report.md').relative_to(ROOT)} after {minutes:.1f} minutes")
    return exit_code(verdicts, chosen.enforce)


if __name__ == "__main__":
    raise SystemExit(main())
