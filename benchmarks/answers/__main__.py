"""Whether answers stay right on a real vLLM server: every item cold and with reuse, beside a second cold run.

``python -m benchmarks.answers --model NAME``. The commands of docs/guides/answers.md in one: build the items, start the
server with the connector and measure pairs, start it without and with other chunks for the floor, judge, draw. The same
command with the same ``--name`` continues an interrupted run.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path

from scripts.engines.specs import EngineOptions, native_dtype, semblend_flags, vllm_missing, vllm_spec
from scripts.models.known import MODELS, SMOLLM2

from benchmarks.console import RESULTS, progress
from benchmarks.documents import ROOT
from benchmarks.e2e import steps
from benchmarks.equal_threads import launch
from sembench.flips import lost_items
from sembench.manifest import read_manifest
from sembench.result import read_result

BLOCK_TOKENS = 128
FLOOR_CHUNK = 256
HOST_BYTES = 512 << 20
DATASETS = ("plain_fact", "derived_stated", "derived_rule")
TRANSFORMS = ("instruction_variant", "field_edit")
OPEN = {"max_context_share": 1.0, "min_inexact_tokens": 0, "min_reuse_ratio": 0.0}
LIMITS = ("--max-answer-flips-beyond-floor", "0", "--max-answer-score-loss", "0.01")
STALE_LIMIT = ("--max-stale-answers-beyond-floor", "0")


def main() -> int:
    arguments = _parse()
    model = MODELS[arguments.model]
    if (missing := vllm_missing(model)) is not None:
        progress(f"nothing measured: {missing}")
        return 3
    folder = RESULTS / f"answers-{arguments.name or arguments.model}"
    folder.mkdir(parents=True, exist_ok=True)
    manifest, result, floor = folder / "manifest.jsonl", folder / "result.json", folder / "floor.json"
    lost_in: tuple[str, ...] = ()
    if arguments.lost_in is not None:
        earlier = RESULTS / f"answers-{arguments.lost_in}"
        manifest, lost_in = earlier / manifest.name, ("--only-lost-in", str(earlier / result.name))
    elif not manifest.exists():
        _make_manifest(arguments, manifest)
    if not result.exists():
        options = {"host_bytes": HOST_BYTES, **json.loads(arguments.options)}
        if arguments.open is not None:
            options |= {**OPEN, "recompute_fraction": arguments.open}
        events = folder / "events.jsonl"
        flags = semblend_flags({**options, "events": str(events)})
        _measure(arguments, flags, manifest, result, events, only=lost_in)
    if lost_in:
        progress(f"the table: python -m benchmarks.answers.table {folder.name.removeprefix('answers-')}")
        return 0
    if not floor.exists() and (arguments.floor == "all" or _lost_in(result)):
        only = ("--only-lost-in", str(result)) if arguments.floor == "lost" else ()
        _measure(arguments, ("--max-num-batched-tokens", str(FLOOR_CHUNK)), manifest, floor, only=only)
    second = ("--floor-result", str(floor)) if floor.exists() else ()
    limits = (*LIMITS, *(STALE_LIMIT if _has_earlier_revisions(manifest) else ()))
    passed = steps.judge(folder, manifest, (*second, "--min-n", str(arguments.items), *limits))
    page = folder / "report.html"
    verdict = str(folder / "verdict.json")
    steps.sembench("report", str(result), "--html", str(page), *second, "--gates", verdict)
    progress(f"{'PASS' if passed else 'FAIL'}; report in {page.relative_to(ROOT)}")
    return 0 if passed else 1


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.answers", description=__doc__)
    parser.add_argument("--model", choices=list(MODELS), default=SMOLLM2.name, help="default: %(default)s")
    parser.add_argument("--items", type=int, default=200, help="items per task and transform (default: 200)")
    parser.add_argument(
        "--words", type=int, default=600, help="length of the documents (default: 600, about 920 tokens)"
    )
    parser.add_argument(
        "--manifest", type=Path, help="measure these items (kvmend bench build), such as questions over your own texts"
    )
    parser.add_argument("--datasets", nargs="+", default=DATASETS, help=f"default: {' '.join(DATASETS)}")
    parser.add_argument("--transforms", nargs="+", default=TRANSFORMS, help=f"default: {' '.join(TRANSFORMS)}")
    parser.add_argument("--max-tokens", type=int, default=8, help="of an answer (default: 8)")
    parser.add_argument(
        "--open",
        type=float,
        metavar="FRACTION",
        help="open the gates and recompute this fraction (default: as deployed)",
    )
    parser.add_argument("--options", default="{}", help="more options of the connector, as JSON")
    parser.add_argument(
        "--concurrency", type=int, default=3, help="items at once: answers count, not times (default: 3)"
    )
    parser.add_argument(
        "--floor",
        choices=("all", "lost"),
        default="all",
        help="items of the second cold run: all, or only those whose answer was lost, in a fraction of the time; "
        "none if none was (default: %(default)s)",
    )
    parser.add_argument(
        "--lost-in",
        metavar="NAME",
        help="measure only the items whose answer was lost in the run of that name, with the settings of this one: "
        "which budget would have kept them (no floor and no verdict)",
    )
    parser.add_argument("--max-model-len", type=int, default=8192, help="of the server (default: %(default)s)")
    parser.add_argument("--cores", help="bind the server to these, such as 0 (default: both)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--name", help="results are kept in a folder of that name (default: the model's)")
    return parser.parse_args()


def _make_manifest(arguments: argparse.Namespace, manifest: Path) -> None:
    """A given manifest is copied, so that the folder of a run is all that a later one needs of it."""
    if arguments.manifest is not None:
        shutil.copyfile(arguments.manifest, manifest)
        return
    steps.sembench(
        "build",
        *("--profile", "answers", "--datasets", *arguments.datasets, "--transforms", *arguments.transforms),
        *("--max-items-per-dataset", str(arguments.items), "--context-words", str(arguments.words)),
        *("--seed", str(arguments.seed), "--output", str(manifest)),
    )


def _has_earlier_revisions(manifest: Path) -> bool:
    """Whether an answer of the manifest can be stale."""
    return any("stale_answer" in item.metadata for item in read_manifest(manifest))


def _lost_in(result: Path) -> bool:
    measured, rows = read_result(result)
    return bool(lost_items(rows, block_size=measured["config"]["block_size"]))


def _measure(
    arguments: argparse.Namespace,
    flags: tuple[str, ...],
    manifest: Path,
    result: Path,
    events: Path | None = None,
    only: tuple[str, ...] = (),
) -> None:
    options = EngineOptions(
        model=MODELS[arguments.model],
        extra=("--enable-prompt-tokens-details", "--max-model-len", str(arguments.max_model_len), *flags),
        environment={"PYTHONPATH": str(ROOT / "src")},
        kv_cache_gib=1,
        cores=arguments.cores or "0-1",
        dtype=native_dtype(),
    )
    pairs = ("--paired", "--connector-audit", str(events)) if events else ("--cold-only",)
    begun = result.with_name(result.name + ".partial.jsonl").exists()
    with launch(vllm_spec(options)) as server:
        progress(f"{result.stem}: server ready after {server.startup_s or 0:.0f} s")
        steps.sembench(
            "run-live-gateway",
            *("--manifest", str(manifest), "--output", str(result), "--gateway-url", server.base_url, *pairs),
            *("--endpoint", "completions", "--recipient-max-tokens", str(arguments.max_tokens)),
            *("--block-size", str(BLOCK_TOKENS), "--seed", str(arguments.seed)),
            *("--concurrency", str(arguments.concurrency), *(("--resume",) if begun else ()), *only),
        )


if __name__ == "__main__":
    raise SystemExit(main())
