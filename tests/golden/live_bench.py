"""A paired live run against a stand-in for an engine, an offline run, and what the gates say of both and of changes."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from tests.fakes.blending_server import running
from tests.golden.compare import as_json, as_lines

from sembench.cli.main import main
from sembench.manifest import WorkloadItem, write_manifest
from sembench.workload.build import build_items
from sembench.workload.sources import SOURCES, SourceRequest
from sembench.workload.transforms import PAIRED, TransformContext

RESETS: Final = (
    "--reset-url",
    "/reset_prefix_cache?reset_external=true",
    "--recipient-reset-url",
    "/reset_prefix_cache",
)
AGGREGATES: Final = ("aggregate", "by_transform", "paired")
# Shares and counts: nothing that a clock decides, and nothing that is None in these runs.
LIVE_METRICS: Final = (
    "backend_confirmed_block_rate",
    "backend_decline_reasons",
    "backend_outcomes",
    "boundary_alignment_rate",
    "answer_flip_rate",
    "confirmed_reuse_rate_by_request",
    "confirmed_reused_token_rate",
    "contaminated_cold_arm_rate",
    "failed_request_rate",
    "materialized_reuse_rate",
    "materialized_reuse_token_rate",
    "negative_control_backend_confirmed_rate",
    "negative_control_confirmed_reuse_rate",
    "negative_control_count",
    "prompt_tokens",
    "propagation_contamination_rate",
    "quality_pass_rate",
    "semantic_placement_rate_by_request",
    "total_blocks",
)
OFFLINE_METRICS: Final = (
    "any_position_token_rate",
    "exact_block_hit_rate",
    "exact_prefix_block_rate",
    "semantic_candidate_block_rate",
    "semantic_eligible_block_rate",
    "semantic_eligible_lift",
    "unverified_planned_token_rate",
    "negative_control_semantic_eligible_block_rate",
    "negative_control_count",
    "prompt_tokens",
    "total_blocks",
)
LIVE_GATES: Final = (
    ("--require-contamination-check", "--require-materialized-reuse"),
    (
        "--min-backend-confirmed-block-rate",
        "0.7",
        "--min-semantic-placement-rate",
        "0.7",
        "--max-answer-flip-rate",
        "0",
    ),
    ("--min-backend-confirmed-block-rate", "0.9", "--max-worst-kl", "0.001", "--max-warm-vs-cold-kl", "0.001"),
    ("--min-identical-text-rate", "1", "--min-semantic-eligible-lift", "0.1"),
)
OFFLINE_GATES: Final = (
    ("--min-any-position-token-rate", "0.2", "--min-semantic-eligible-lift", "0.1"),
    ("--min-any-position-token-rate", "0.99", "--min-backend-confirmed-block-rate", "0.1"),
)


def benched(folder: Path) -> dict[str, str]:
    items = _items()
    manifest = folder / "manifest.jsonl"
    write_manifest(manifest, items)
    live, offline = _live_run(manifest), _offline_run(manifest)
    texts = {
        "bench/live.json": as_json(_live_figures(live)),
        "bench/offline.json": as_json(_offline_figures(offline)),
    }
    verdicts = [*_verdicts(folder, "live", live, LIVE_GATES), *_verdicts(folder, "offline", offline, OFFLINE_GATES)]
    for name, change in CHANGES.items():
        changed = json.loads(json.dumps(live))
        change(changed)
        verdicts += _verdicts(folder, f"live, {name}", changed, LIVE_GATES[:1])
    return {**texts, "bench/verdicts.txt": as_lines(verdicts)}


def _items() -> list[WorkloadItem]:
    corpus = SOURCES.get("fixture")(SourceRequest())
    return [item for item in build_items(corpus, PAIRED, TransformContext(corpus)).items if item.source_id == "ferry"]


def _live_run(manifest: Path) -> dict[str, Any]:
    output, events = manifest.with_name("live.json"), manifest.with_name("events.jsonl")
    with running("--events", events, "--lazy") as url:
        command = ["run-live-gateway", "--manifest", manifest, "--output", output, "--gateway-url", url, "--warm-up", 1]
        more = ["--paired", *RESETS, "--connector-audit", events, "--capture-logprobs", 5, "--check-propagation", 1]
        _run(command + more)
    return _read(output)


def _offline_run(manifest: Path) -> dict[str, Any]:
    output = manifest.with_name("offline.json")
    _run(["run-offline", "--manifest", manifest, "--output", output, "--block-size", 16])
    return _read(output)


def _run(command: list[Any]) -> None:
    with contextlib.redirect_stdout(io.StringIO()):
        code = main([str(word) for word in command])
    assert code == 0, f"{command[0]} ended with {code}"


def _read(path: Path) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return result


def _live_figures(result: Mapping[str, Any]) -> dict[str, Any]:
    paired = ("pairs", "clean_pairs", "failed_pairs", "flush_contaminated_pairs", "hit_only_ttft_speedup_n")
    return {
        "aggregate": {name: result["aggregate"][name] for name in LIVE_METRICS},
        "paired": {name: result["paired"][name] for name in paired},
        "requests": [_live_row(row) for row in result["requests"]],
    }


def _live_row(row: Mapping[str, Any]) -> dict[str, Any]:
    arms = {
        arm: {name: row[arm][name] for name in ("status", "cached_tokens", "completion_tokens", "text")}
        for arm in ("cold", "warm")
    }
    backend = {name: row["backend"][name] for name in ("outcome", "boundary", "reused_tokens", "propagated_tokens")}
    pair = {name: row["pair"][name] for name in ("agreed_tokens", "mean_kl", "worst_kl")}
    return {
        "transform": row["transform"],
        "route_outcome": row["route_outcome"],
        "confirmed_blocks": row["backend_confirmed_blocks"],
        "backend": backend,
        "pair": pair,
        **arms,
    }


def _offline_figures(result: Mapping[str, Any]) -> dict[str, Any]:
    return {"aggregate": {name: result["aggregate"][name] for name in OFFLINE_METRICS}}


def _verdicts(folder: Path, name: str, result: Mapping[str, Any], calls: tuple[tuple[str, ...], ...]) -> Iterator[str]:
    judged, verdict = folder / "judged.json", folder / "verdict.json"
    judged.write_text(json.dumps(result), encoding="utf-8")
    for gates in calls:
        with contextlib.redirect_stdout(io.StringIO()):
            code = main(["assert-result-gates", "--result", str(judged), "--output", str(verdict), *gates])
        found = _read(verdict)
        yield f"{name}: {' '.join(gates)}"
        yield f"  exit {code}, passed {found['passed']}"
        yield from (f"  failed: {failure}" for failure in dict.fromkeys(map(_failure, found["failures"])))
        yield from (f"  checked: {check}" for check in found["checked"])
        yield from (_gate_line(gate) for gate in found["gates"])


def _failure(sentence: str) -> str:
    """Without the figures, some of which are times."""
    name = sentence.partition(":")[0].partition(" is ")[0]
    return "aggregates do not follow from rows" if name.partition(".")[0] in AGGREGATES else name


def _gate_line(gate: Mapping[str, Any]) -> str:
    value = gate["value"] if gate["value"] is None else f"{gate['value']:.6g}"
    shares = f"{gate['numerator']} / {gate['denominator']}, n = {gate['n']}"
    verdict = "ok" if gate["passed"] else "no"
    return f"  {verdict}  {gate['gate']}: {gate['metric']} {value} ({shares}), wanted {gate['wanted']}"


def _claim_more(result: dict[str, Any]) -> None:
    result["aggregate"]["backend_confirmed_block_rate"] = 0.99


def _reuse_in_control(result: dict[str, Any]) -> None:
    row = next(row for row in result["requests"] if row["transform"] == "negative_control")
    row["backend_confirmed_blocks"] = 3


def _lose_a_pair(result: dict[str, Any]) -> None:
    del result["requests"][0]


CHANGES: Final[Mapping[str, Callable[[dict[str, Any]], None]]] = {
    "a better share claimed": _claim_more,
    "reuse in a negative control": _reuse_in_control,
    "a request left out": _lose_a_pair,
}
