"""The live run: a manifest and a server in, a result out. Rows are on disk as they finish, so a run can go on later."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from sembase.errors import ConfigurationError
from sembase.streams import write_err
from sembench.http.reply import OK
from sembench.live.interruption import run_interruptibly
from sembench.live.opening import OpenRun, open_run
from sembench.live.options import LiveRun
from sembench.live.progress import LiveProgress
from sembench.live.prompt_size import PromptSizes
from sembench.live.server_metrics import metrics_since, scrape
from sembench.live.session import LostConnectionError
from sembench.live.sittings import begun, ended, has_failed, read_sittings, statuses_of
from sembench.live.units import live_units, replay
from sembench.manifest import WorkloadItem, manifest_digest, read_manifest
from sembench.metrics.rows import RequestRow
from sembench.replay.partial import PartialWriter, partial_path
from sembench.result import RunFacts, assemble, write_result
from semblend.contract import Evidence

_LABEL: Final = "live replay"
_FAILURES_IN_A_ROW: Final = 5


@dataclass(frozen=True, slots=True)
class Replayed:
    """A finished replay: its rows in the manifest's order, and where they come from."""

    rows: Sequence[RequestRow]
    manifest_digest: str
    opened: OpenRun
    server_metrics: Mapping[str, Any] | None
    sittings: Sequence[Mapping[str, Any]]


def run_live(run: LiveRun) -> dict[str, Any]:
    """Replays, writes the result atomically and returns it. A signal ends it with ``InterruptedRunError``."""
    return replay_manifest(run, lambda replayed: _write(run, replayed))


def replay_manifest(run: LiveRun, write: Callable[[Replayed], dict[str, Any]]) -> dict[str, Any]:
    """``write`` makes the output of the rows; only when it has returned are the partial rows given up."""
    run.require_sound()
    items = read_items(run)
    sizes = PromptSizes(run.options.tokenizer, run.options.block_size)
    return run_interruptibly(_replay(run, items, sizes, write))


def read_items(run: LiveRun) -> list[WorkloadItem]:
    items = read_manifest(run.manifest, run.max_items)
    if not items:
        raise ConfigurationError(f"{run.manifest} holds no items")
    repeated = [item_id for item_id, count in Counter(item.item_id for item in items).items() if count > 1]
    if repeated:
        raise ConfigurationError(
            f"{run.manifest}: item_id {repeated[0]} occurs twice; sembench audit-manifest says more"
        )
    return items


async def _replay(
    run: LiveRun,
    items: Sequence[WorkloadItem],
    sizes: PromptSizes,
    write: Callable[[Replayed], dict[str, Any]],
) -> dict[str, Any]:
    async with AsyncExitStack() as stack:
        opened = await open_run(run, sizes, stack)
        digest = manifest_digest(run.manifest)
        identity = {
            "manifest_digest": digest,
            "kind": run.kind,
            "config": opened.config,
            "engine": {part: opened.engine.get(part) for part in ("name", "version")},
        }
        partial = partial_path(run.output)
        found, sittings = read_sittings(partial, identity) if run.resume else ([], [])
        rows = _known_rows(run, items, found)
        sitting = begun(len(rows))
        before = await scrape(opened.client, run.metrics_url)
        units = live_units(items, rows.keys(), streams_apart=run.options.arms in ("warm", "paired"))
        header = {**identity, "sittings": [*sittings, sitting]}
        with PartialWriter(partial, header, list(rows.values())) as writer:
            names = ("first", "second") if run.options.arms == "cold_twice" else ("cold", "warm")
            progress = LiveProgress(_LABEL, len(items), list(rows.values()), names)
            replayed = replay(units, opened.session, run.options.concurrency)
            # Closed before the clients are: an error here must not leave requests in flight.
            async with aclosing(replayed), aclosing(_guarded(replayed, run, len(items))) as measured:
                async for row in measured:
                    writer.append(row)
                    rows[row.item_id] = row
                    progress.add(row)
            progress.end()
            metrics = await metrics_since(before, opened.client, run.metrics_url)
            measured_rows = [rows[item.item_id] for item in items]
            sittings = [*sittings, ended(sitting, measured_rows, datetime.now(UTC), "finished")]
            written = write(Replayed(measured_rows, digest, opened, metrics, sittings))
            writer.discard()
    return written


def _write(run: LiveRun, replayed: Replayed) -> dict[str, Any]:
    result = assemble(_facts(run, replayed), replayed.rows)
    write_result(run.output, result)
    return result


def _known_rows(run: LiveRun, items: Sequence[WorkloadItem], found: list[RequestRow]) -> dict[str, RequestRow]:
    """Rows of an earlier sitting. Those with a failed arm are measured again: the server may have been at fault."""
    wanted = {item.item_id for item in items}
    rows = {row.item_id: row for row in found if row.item_id in wanted and not has_failed(row)}
    if run.resume:
        failed = sum(has_failed(row) for row in found)
        again = f" ({failed} that failed are measured again)" if failed else ""
        left = f"{len(rows)} of {len(items)} already done, {len(items) - len(rows)} left{again}"
        write_err(f"{_LABEL}: {left if found else f'nothing to resume, starting with the first of {len(items)}'}\n")
    return rows


async def _guarded(
    rows: AsyncGenerator[RequestRow, None], run: LiveRun, total: int
) -> AsyncGenerator[RequestRow, None]:
    """Ends the run when the server has gone, rather than filling the result with failures."""
    failures = done = 0
    try:
        async for row in rows:
            done += 1
            faults = [status for status in statuses_of(row) if _is_servers_fault(status)]
            failures = failures + 1 if faults else 0
            yield row
            if failures == _FAILURES_IN_A_ROW and done < total:
                raise ConnectionError(
                    f"{run.base_url}: {failures} items in a row failed ({faults[0]} last); see the server's log, then "
                    "run again with --resume"
                )
    except LostConnectionError as error:
        raise ConnectionError(
            f"{run.base_url} stopped answering ({error}); start the server and run again with --resume"
        ) from None


def _is_servers_fault(status: str) -> bool:
    """A request that the server refuses (too long, say) is the manifest's fault and ends no run."""
    return status != OK and "http_4" not in status


def _facts(run: LiveRun, replayed: Replayed) -> RunFacts:
    session = replayed.opened.session
    audit = session.audit
    return RunFacts(
        kind=run.kind,
        evidence=Evidence.MEASURED_LIVE,
        manifest_name=run.manifest.name,
        manifest_digest=replayed.manifest_digest,
        config=replayed.opened.config,
        max_items=run.max_items,
        seed=run.options.seed,
        engine=replayed.opened.engine,
        extra={
            "resumed": run.resume,
            "sittings": list(replayed.sittings),
            # Of this sitting alone: what came before a break is in the rows, not in here.
            "preparation": {
                "donors": session.notes.donors,
                "unregistered_donors": session.notes.unregistered_donors if audit is not None else None,
                "refused_resets": session.notes.refused_resets,
                "first_refusal": session.notes.first_refusal or None,
                "damaged_audit_lines": audit.damaged if audit is not None else None,
                "missing_audit_events": audit.missing if audit is not None else None,
            },
            "server_metrics": replayed.server_metrics,
        },
    )
