"""The result file (``sembench.result.v2``): rows, the aggregates computed from them, and their provenance."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from sembase.errors import ContractError
from sembase.files import replace_atomically
from sembench.environment import describe_environment
from sembench.metrics import aggregate, aggregate_by_transform
from sembench.metrics.rows import RequestRow, pairs_of, row_from_json
from sembench.paired import summarize_pairs
from semblend.contract import Evidence

RESULT_VERSION: Final = "sembench.result.v2"
_KEYS: Final = frozenset(
    {
        "result_version",
        "created_at_utc",
        "run",
        "config",
        "engine",
        "environment",
        "aggregate",
        "paired",
        "by_transform",
        "requests",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """What a runner knows about its run. ``engine`` is None without an engine.

    ``seed`` seeds the run's own random choices, None if there are none; a manifest's seed is fixed by its digest. A run
    with pairs has its ``block_size`` in ``config``: whether an arm was cold depends on it.
    """

    kind: str
    evidence: Evidence
    manifest_name: str
    manifest_digest: str
    config: Mapping[str, Any]
    max_items: int | None = None
    seed: int | None = None
    engine: Mapping[str, Any] | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)


def assemble(facts: RunFacts, rows: Sequence[RequestRow]) -> dict[str, Any]:
    return {
        "result_version": RESULT_VERSION,
        "created_at_utc": datetime.now(UTC).isoformat(timespec="seconds"),
        "run": {
            "kind": facts.kind,
            "evidence": str(facts.evidence),
            "items": len(rows),
            "manifest": facts.manifest_name,
            "manifest_digest": facts.manifest_digest,
            "max_items": facts.max_items,
            "seed": facts.seed,
            **facts.extra,
        },
        "config": dict(facts.config),
        "engine": facts.engine,
        "environment": describe_environment(),
        "aggregate": aggregate(rows),
        "paired": paired_block(rows, facts.config, facts.seed),
        "by_transform": aggregate_by_transform(rows),
        "requests": [row.to_json() for row in rows],
    }


def paired_block(rows: Sequence[RequestRow], config: Mapping[str, Any], seed: int | None) -> dict[str, Any] | None:
    """The ``paired`` block of the rows, None if no row has both arms. A run without a seed resamples with seed 0."""
    if not pairs_of(rows):
        return None
    block_size = config.get("block_size")
    if type(block_size) is not int or block_size < 1:
        raise ContractError(
            f"config.block_size is {block_size!r}; without an integer of at least 1 no cold arm can be checked"
        )
    return summarize_pairs(rows, block_size=block_size, seed=0 if seed is None else seed)


def write_result(path: Path, result: Mapping[str, Any]) -> None:
    with replace_atomically(path) as stream:
        text = json.dumps(result, ensure_ascii=False, indent=1, sort_keys=True, allow_nan=False)
        stream.write(text.encode() + b"\n")


def read_result(path: Path) -> tuple[dict[str, Any], list[RequestRow]]:
    """A result and its rows, checked for shape. The gates check whether the aggregates follow from the rows."""
    try:
        result = json.loads(path.read_text(encoding="utf-8"), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise ContractError(f"{path}: not JSON: {error}") from None
    if not isinstance(result, dict):
        raise ContractError(f"{path}: not a JSON object")
    if result.get("result_version") != RESULT_VERSION:
        raise ContractError(f"{path}: result_version {result.get('result_version')!r} is not {RESULT_VERSION!r}")
    if wrong := sorted(_KEYS.symmetric_difference(result)):
        raise ContractError(f"{path}: missing or unknown keys: {', '.join(wrong)}")
    for key, kind in (("run", dict), ("config", dict), ("aggregate", dict), ("by_transform", dict), ("requests", list)):
        if not isinstance(result[key], kind):
            raise ContractError(f"{path}: '{key}' must be {kind.__name__}")
    rows = [row_from_json(row, f"{path}: requests[{i}]") for i, row in enumerate(result["requests"])]
    return result, rows


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a number")
