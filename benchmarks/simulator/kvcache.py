"""Beside ``kvcache-simulator`` on the same requests. ``python -m benchmarks.simulator kvcache``.

LRU over prefix trees; its hit rate is that of the later half of the requests, so ours is summed over the same. (Its
FIFO evicts parents before their children, ours never: no pair to compare.) Timed is one capacity's replay alone: what
eight more capacities cost its command, divided by eight.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from scripts.data.folder import DATA
from scripts.private_venv import VenvRecipe, clean_environment, ensure_venv, folder_of

from benchmarks.console import RESULTS, exit_code, progress, show_table, show_verdicts, write_results
from benchmarks.simulator.speed import claude_code
from benchmarks.targets import Verdict
from semantic_kv.simulate import simulate
from sembase.trace.columns import BlockTrace
from sembase.trace.load import load_trace

RECIPE = VenvRecipe("rivals/kvcache-simulator-0.1.3", ("kvcache-simulator==0.1.3",))
POLICY = "lru"
CAPACITIES = (1_000, 2_000, 3_000, 4_000, 5_000, 6_000, 8_000, 10_000, 20_000)
MODEL = "glm-5.2"
_PROBE_GIB = 1_024


def main(argv: Sequence[str] | None = None) -> int:
    arguments = _parse(argv)
    ensure_venv(RECIPE)
    rows: list[tuple[object, ...]] = []
    verdicts: list[Verdict] = []
    for trace in _traces(arguments.data, arguments.requests):
        more_rows, more_verdicts = _compare(trace)
        rows += more_rows
        verdicts += more_verdicts
    columns = ("trace", "references", "blocks", "their hit rate", "our hit rate", "their s", "our s")
    show_table("LRU, the later half of the requests, tokens; seconds of one capacity's replay alone", columns, rows)
    show_verdicts(verdicts)
    write_results("simulator-kvcache", {"rows": rows, "verdicts": [verdict.as_record() for verdict in verdicts]})
    return exit_code(verdicts, arguments.enforce)


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.simulator kvcache", description=__doc__)
    parser.add_argument("--data", type=Path, default=DATA, help="folder with traces/ (default: %(default)s)")
    parser.add_argument("--requests", type=int, default=5_000, help="of the Claude Code trace (default: %(default)s)")
    parser.add_argument("--enforce", action="store_true", help="fail where a target is not reached")
    return parser.parse_args(argv)


def _traces(data: Path, requests: int) -> list[BlockTrace]:
    mooncake = load_trace(data / "traces" / "mooncake_conversation_trace.jsonl.gz")
    return [mooncake, claude_code(data, 1_000_000, 20).window(0, requests)]


def _compare(trace: BlockTrace) -> tuple[list[tuple[object, ...]], list[Verdict]]:
    with tempfile.TemporaryDirectory(dir=RESULTS) as folder:
        path = Path(folder) / "trace.jsonl"
        _write(trace, path)
        block_gib = _block_gib(path)
        progress(trace.name)
        hit_rates, their_seconds = _theirs(path, block_gib)
    our_rates, our_seconds = _ours(trace, sorted(hit_rates))
    size = (trace.name, f"{trace.reference_count:,}")
    rows: list[tuple[object, ...]] = [
        (*size, f"{blocks:,}", f"{rate:.4f}", f"{our_rates[blocks]:.4f}", f"{their_seconds:.3f}", f"{our_seconds:.3f}")
        for blocks, rate in sorted(hit_rates.items())
    ]
    farthest = max(abs(our_rates[blocks] - rate) for blocks, rate in hit_rates.items())
    verdicts = [
        Verdict(f"{trace.name}: farthest from its hit rate", "<=", 0.0005, farthest),
        Verdict(f"{trace.name}: our speed", ">=", 1.0, their_seconds / our_seconds, "of its"),
    ]
    return rows, verdicts


def _write(trace: BlockTrace, path: Path) -> None:
    with path.open("w", encoding="ascii") as stream:
        for request in range(trace.request_count):
            nodes = trace.nodes[trace.offsets[request] : trace.offsets[request + 1]]
            tokens = trace.node_tokens[nodes].tolist()
            line = {"block_size": max(tokens), "input_length": sum(tokens), "hash_ids": nodes.tolist()}
            stream.write(json.dumps(line | {"block_tokens": tokens}) + "\n")


def _theirs(path: Path, block_gib: float) -> tuple[dict[int, float], float]:
    one, _ = _run(path, [CAPACITIES[0] * block_gib])
    all_of_them, found = _run(path, [blocks * block_gib for blocks in CAPACITIES])
    hit_rates = {point["cacheBlocks"]: point["results"][POLICY]["hitRate"] for point in found["points"]}
    return hit_rates, max(all_of_them - one, 1e-9) / (len(CAPACITIES) - 1)


def _block_gib(path: Path) -> float:
    _, found = _run(path, [_PROBE_GIB])
    return float(found["metadata"]["bytesPerBlock"]) / 2**30


def _run(path: Path, budgets_gib: Sequence[float]) -> tuple[float, dict[str, Any]]:
    """Processor seconds of the command and its children, and what it found."""
    command = [str(folder_of(RECIPE) / "bin" / "kvcache-simulator"), "run", "--no-progress", "--format", "json"]
    command += ["--trace", str(path), "--model", MODEL, "--policies", POLICY]
    # A hair above the whole number of blocks: it rounds down.
    command += ["--budgets-gib", ",".join(f"{gib * 1.000001:.9f}" for gib in budgets_gib)]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    path_of_compilers = {"PATH": f"{folder_of(RECIPE) / 'bin'}:{os.defpath}"}
    done = subprocess.run(
        command, check=True, stdout=subprocess.PIPE, env=clean_environment(path_of_compilers), timeout=600
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    found: dict[str, Any] = json.loads(done.stdout)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, found


def _ours(trace: BlockTrace, capacities: Sequence[int]) -> tuple[dict[int, float], float]:
    half = trace.request_count // 2
    asked = trace.node_tokens[trace.nodes[trace.offsets[half] :]].sum()
    simulate(trace.window(0, 10), capacity=10, evict=POLICY)  # compiling is not serving
    hit_rates: dict[int, float] = {}
    started = time.process_time()
    for capacity in capacities:
        run = simulate(trace, capacity=capacity, evict=POLICY)
        hit_rates[capacity] = float(run.per_request_hit_tokens[half:].sum() / asked)
    return hit_rates, (time.process_time() - started) / len(capacities)
