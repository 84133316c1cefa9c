"""The offline run: a manifest in, a result out. Without an engine nothing here counts as reuse."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from sembase.streams import write_err
from sembase.tokenizer import NOT_A_MODEL, open_tokenizer
from sembench.manifest import manifest_digest, read_run_items
from sembench.metrics.rows import row_from_json
from sembench.replay.partial import PartialWriter, partial_path, read_partial
from sembench.replay.progress import watch
from sembench.replay.session import ReplayConfig
from sembench.replay.units import replay_units, units_of
from sembench.result import RunFacts, assemble, write_result
from semblend.contract import Evidence

_LABEL: Final = "offline replay"


@dataclass(frozen=True, slots=True, kw_only=True)
class OfflineRun:
    manifest: Path
    output: Path
    config: ReplayConfig
    max_items: int | None = None
    jobs: int = 1
    resume: bool = False


def run_offline(run: OfflineRun) -> dict[str, Any]:
    """Replays, writes the result atomically and returns it."""
    items = read_run_items(run.manifest, run.max_items)
    facts = _facts(run)
    # Rows of an interrupted run are valid only with the same identity. --jobs is not part of it: it changes no row.
    identity = {"manifest_digest": facts.manifest_digest, "config": facts.config}
    partial = partial_path(run.output)
    done = read_partial(partial, identity, row_from_json) if run.resume else []
    wanted = {item.item_id for item in items}
    rows = {row.item_id: row for row in done if row.item_id in wanted}
    units = units_of(items, rows.keys())
    if run.resume:
        left = f"{len(rows)} of {len(items)} already done, {len(items) - len(rows)} left"
        nothing = f"nothing to resume, starting with the first of {len(items)}"
        write_err(f"{_LABEL}: {left if rows else nothing}\n")
    with PartialWriter(partial, identity, list(rows.values())) as writer:
        for row in watch(replay_units(units, run.config, run.jobs), len(items) - len(rows), _LABEL):
            writer.append(row)
            rows[row.item_id] = row
        result = assemble(facts, [rows[item.item_id] for item in items])
        write_result(run.output, result)
        writer.discard()
    return result


def _facts(run: OfflineRun) -> RunFacts:
    tokenizer = open_tokenizer(run.config.tokenizer)
    return RunFacts(
        kind="offline",
        evidence=Evidence.OFFLINE,
        manifest_name=run.manifest.name,
        manifest_digest=manifest_digest(run.manifest),
        max_items=run.max_items,
        config={
            "block_size": run.config.block_size,
            "planner": asdict(run.config.planner),
            "tokenizer": {
                "name": tokenizer.name,
                "digest": tokenizer.digest,
                "is_model_tokenizer": tokenizer.is_model_tokenizer,
                "warning": None if tokenizer.is_model_tokenizer else NOT_A_MODEL,
            },
        },
    )
