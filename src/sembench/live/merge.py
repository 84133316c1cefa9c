"""A cold run and a warm run of the same items -> one paired result. Runs that do not match are rejected."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from sembase.errors import ContractError
from sembench.gates.integrity import LIVE
from sembench.live.engine import engine_label
from sembench.metrics.rows import ArmRow, PairRow, RequestRow
from sembench.result import RunFacts, assemble, read_result
from sembench.scoring.words import is_flipped, is_kept, score
from semblend.contract import Evidence

# Must be equal, so that the arms differ only in the cache.
_SETTINGS: Final = (
    "model",
    "endpoint",
    "block_size",
    "tokenizer",
    "recipient_max_tokens",
    "top_logprobs",
    "quality_threshold",
    "tenant",
    "template",
    "concurrency",
)
_MACHINE: Final = ("platform", "hardware")
_SAME_IN_BOTH: Final = ("dataset", "source_id", "transform", "negative_control", "tenant", "stream_id", "prompt_tokens")


def merge(cold_path: Path, warm_path: Path) -> dict[str, Any]:
    cold, cold_rows = read_result(cold_path)
    warm, warm_rows = read_result(warm_path)
    _require_same_run(cold, warm, cold_path, warm_path)
    _require_arm(cold_rows, "cold", cold_path)
    _require_arm(warm_rows, "warm", warm_path)
    by_item = {row.item_id: row for row in cold_rows}
    if len(by_item) != len(cold_rows) or len({row.item_id for row in warm_rows}) != len(warm_rows):
        raise ContractError("an item has two rows in one result")
    if lacking := {row.item_id for row in warm_rows} ^ by_item.keys():
        raise ContractError(
            f"{len(lacking)} items are in one result only ({min(lacking)} first); run both with the same --max-items"
        )
    warm_first = str(warm["created_at_utc"]) < str(cold["created_at_utc"])
    config = {**warm["config"], "arms": "paired", "isolation": "separate runs"}
    rows = [_joined(by_item[row.item_id], row, warm_first, config["quality_threshold"]) for row in warm_rows]
    return assemble(_facts(cold, warm, config), rows)


def _facts(cold: Mapping[str, Any], warm: Mapping[str, Any], config: Mapping[str, Any]) -> RunFacts:
    return RunFacts(
        kind="merged",
        evidence=Evidence.MEASURED_LIVE,
        manifest_name=warm["run"]["manifest"],
        manifest_digest=warm["run"]["manifest_digest"],
        config=config,
        max_items=warm["run"].get("max_items"),
        seed=warm["run"].get("seed"),
        engine=warm["engine"],
        extra={
            # The arms were not interleaved, so the speedups include changes of the machine between the runs.
            "merged_from": {
                name: {key: result[key] for key in ("created_at_utc", "engine", "environment", "config", "run")}
                for name, result in (("cold", cold), ("warm", warm))
            }
        },
    )


def _require_same_run(cold: Mapping[str, Any], warm: Mapping[str, Any], cold_path: Path, warm_path: Path) -> None:
    for path, result in ((cold_path, cold), (warm_path, warm)):
        if result["run"].get("evidence") not in LIVE:
            raise ContractError(f"{path}: evidence is {result['run'].get('evidence')!r}; only live runs have arms")
    digests = [result["run"].get("manifest_digest") for result in (cold, warm)]
    if digests[0] != digests[1] or digests[0] is None:
        raise ContractError(f"{cold_path} and {warm_path} are runs of different manifests")
    engines = [{**(result["engine"] or {}), "model": None} for result in (cold, warm)]
    if engines[0] != engines[1]:
        raise ContractError(
            f"{cold_path} and {warm_path} are of different engines: {engine_label(engines[0])} and "
            f"{engine_label(engines[1])}; run both on the same one"
        )
    for name in _MACHINE:
        values = [result["environment"].get(name) for result in (cold, warm)]
        if values[0] != values[1]:
            raise ContractError(
                f"{cold_path} and {warm_path} were measured on different machines ({name} {values[0]!r} and "
                f"{values[1]!r}); run both on the same one"
            )
    for name in _SETTINGS:
        values = [result["config"].get(name) for result in (cold, warm)]
        if values[0] != values[1]:
            raise ContractError(
                f"{cold_path} and {warm_path} differ in {name}: {values[0]!r} and {values[1]!r}; use the same"
            )


def _require_arm(rows: Sequence[RequestRow], arm: str, path: Path) -> None:
    other = "warm" if arm == "cold" else "cold"
    for row in rows:
        if getattr(row, arm) is None or getattr(row, other) is not None:
            raise ContractError(f"{path}: {row.item_id} is not a row of a {arm}-only run")


def _joined(cold: RequestRow, warm: RequestRow, warm_first: bool, threshold: float) -> RequestRow:
    for name in _SAME_IN_BOTH:
        ours, theirs = getattr(cold, name), getattr(warm, name)
        if ours != theirs and not (name == "prompt_tokens" and 0 in (ours, theirs)):
            raise ContractError(f"{warm.item_id}: {name} is {ours!r} in the cold run and {theirs!r} in the warm one")
    if cold.cold is None or warm.warm is None:
        raise ContractError(f"{warm.item_id} lacks an arm")
    arm, passes, flip = warm.warm, warm.quality_pass, None
    if cold.cold.text is not None and arm.text is not None:
        flip = is_flipped(cold.cold.text, arm.text, cold.quality_pass, passes, threshold)
        if passes is None:
            arm, passes = _scored_against(cold.cold.text, arm, threshold)
    return replace(
        warm, cold=cold.cold, warm=arm, quality_pass=passes, pair=PairRow(warm_first=warm_first, answer_flip=flip)
    )


def _scored_against(reference: str, arm: ArmRow, threshold: float) -> tuple[ArmRow, bool | None]:
    """Without known answers the cold answer is the reference, as in a paired run."""
    scores = score(arm.text or "", (reference,))
    if scores is None:
        return arm, None
    scored = replace(
        arm,
        token_recall=scores.token_recall,
        f1=scores.f1,
        rouge_l=scores.rouge_l,
        exact_match=scores.exact_match,
    )
    return scored, is_kept(scores, threshold)
