"""What real traffic repeats: exact-prefix, exact-block, candidate, eligible and any-position rates, by SmolLM2 tokens.

Runs ``kvmend bench build`` and ``kvmend bench run-offline`` on the texts next to the repository, as streams (every
earlier request is a donor) and once with every transform, then repeats the streams with an embedder to show what the
semantic path adds to the token path.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripts.models.known import SMOLLM2

from benchmarks.console import RESULTS, progress, show_table, write_results
from benchmarks.documents import DEFAULT_TEXTS

RATES = (
    "exact_prefix_block_rate",
    "exact_block_hit_rate",
    "semantic_candidate_block_rate",
    "semantic_eligible_block_rate",
    "any_position_token_rate",
    "beyond_prefix_planned_token_rate",
    "unverified_planned_token_rate",
)
EXTRA = (
    "semantic_path_extra_candidate_blocks",
    "semantic_path_extra_eligible_blocks",
    "semantic_path_extra_discoveries",
)


@dataclass(frozen=True, slots=True)
class Corpus:
    name: str
    profile: str
    folder: str


CORPORA = (
    Corpus("musique_s", "jsonl", "."),
    Corpus("multi_news", "longbench-v1", "longbench"),
    Corpus("agent_miniswe", "agent-trace", "."),
    Corpus("agent_magagent", "agent-trace", "."),
    Corpus("agent_taubench", "agent-trace", "."),
)


def main() -> int:
    arguments = _parse()
    if not arguments.texts.is_dir():
        progress(f"nothing measured: no texts in {arguments.texts.name}/ (set --texts)")
        return 0
    limit = 12 if arguments.quick else arguments.max_items
    plain = [(corpus, _run(corpus, arguments.texts, limit, "none")) for corpus in CORPORA]
    _show_rates(plain)
    _show_transforms(arguments.texts, 2 if arguments.quick else 10)
    ablations = []
    for embedder, items in (("jaccard", limit), ("minilm", 4 if arguments.quick else arguments.minilm_items)):
        corpora = CORPORA[:1] if arguments.quick or embedder == "minilm" else CORPORA
        ablations += [(corpus, embedder, _run(corpus, arguments.texts, items, embedder)) for corpus in corpora]
    _show_ablation(ablations)
    record = {"rates": [(c.name, r) for c, r in plain], "ablation": [(c.name, e, r) for c, e, r in ablations]}
    path = write_results("offline", record)
    progress(f"written: {path.name} in {path.parent.name}/")
    wrong = sum(_numerator(result, "unverified_planned_token_rate") for _, result in plain)
    if wrong:
        progress(f"VIOLATED: {wrong} planned tokens differ from the donor's")
    return 1 if wrong else 0


def _numerator(result: dict[str, Any], metric: str) -> int:
    """The count; 0 for a stream in which nothing was planned."""
    return result["aggregate"]["parts"][metric]["numerator"] or 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.offline", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a dozen requests of each corpus")
    parser.add_argument("--texts", type=Path, default=DEFAULT_TEXTS, help="folder of the real texts")
    parser.add_argument("--max-items", type=int, help="the first N requests of each corpus (default: all)")
    parser.add_argument("--minilm-items", type=int, default=40, help="requests repeated with MiniLM (default: 40)")
    return parser.parse_args()


def _run(corpus: Corpus, texts: Path, limit: int | None, embedder: str) -> dict[str, Any]:
    progress(f"{corpus.name}, embedder {embedder}")
    manifest = RESULTS / "offline" / f"{corpus.name}.jsonl"
    output = RESULTS / "offline" / f"{corpus.name}-{embedder}.json"
    manifest.parent.mkdir(parents=True, exist_ok=True)
    source = ["--profile", corpus.profile, "--data-dir", str(texts / corpus.folder), "--datasets", corpus.name]
    _sembench("build", *source, "--transforms", "stream", "--output", str(manifest))
    items = [] if limit is None else ["--max-items", str(limit)]
    tokens = ["--tokenizer", str(SMOLLM2.folder), "--semblend-min-reuse-ratio", "0.0"]
    semantic = ["--semblend-embedder", embedder, "--semblend-min-similarity", "0.6"]
    _sembench("run-offline", "--manifest", str(manifest), "--output", str(output), *tokens, *semantic, *items)
    result: dict[str, Any] = json.loads(output.read_text(encoding="utf-8"))
    return {key: result[key] for key in ("aggregate", "run", "config")} | {"requests": len(result["requests"])}


def _sembench(*words: str) -> str:
    run = subprocess.run([sys.executable, "-m", "sembench", *words], capture_output=True, text=True, check=False)
    if run.returncode:
        raise SystemExit(f"sembench {words[0]} failed ({run.returncode}):\n{run.stdout}{run.stderr}")
    return run.stdout


def _show_transforms(texts: Path, records: int) -> None:
    """Pairs instead of streams: the documents of multi_news under every transform, negatives included."""
    progress("multi_news, every transform")
    manifest, output = RESULTS / "offline" / "pairs.jsonl", RESULTS / "offline" / "pairs.json"
    source = ["--profile", "longbench-v1", "--data-dir", str(texts / "longbench"), "--datasets", "multi_news"]
    _sembench("build", *source, "--max-items-per-dataset", str(records), "--output", str(manifest))
    tokens = ["--tokenizer", str(SMOLLM2.folder)]
    print(_sembench("run-offline", "--manifest", str(manifest), "--output", str(output), *tokens))
    print(_sembench("assert-result-gates", "--result", str(output)))


def _show_rates(results: list[tuple[Corpus, dict[str, Any]]]) -> None:
    rows = []
    for corpus, result in results:
        figures = result["aggregate"]
        rates = [None if figures[name] is None else f"{figures[name]:.1%}" for name in RATES]
        rows.append(
            [corpus.name, result["requests"], figures["total_blocks"], *rates, _two(figures["plan_latency_ms_p50"])]
        )
    columns = [
        "stream",
        "requests",
        "blocks of 16",
        "exact prefix",
        "exact block",
        "candidate",
        "eligible",
        "any position",
    ]
    show_table("Offline, token path alone", [*columns, "beyond prefix", "wrong tokens", "plan p50 ms"], rows)


def _show_ablation(results: list[tuple[Corpus, str, dict[str, Any]]]) -> None:
    rows = [
        [corpus.name, embedder, result["requests"], *(result["aggregate"][name] for name in EXTRA)]
        for corpus, embedder, result in results
    ]
    columns = [
        "stream",
        "embedder",
        "requests",
        "extra candidate blocks",
        "extra eligible blocks",
        "requests with discoveries",
    ]
    show_table("What the semantic path adds beyond the token path", columns, rows)


def _two(value: float | None) -> str | None:
    return None if value is None else f"{value:.2f}"


if __name__ == "__main__":
    sys.exit(main())
