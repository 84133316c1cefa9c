"""The live run: a manifest and a server in, a result out. Rows are written as they finish, so a run can be resumed."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

from sembase.errors import ConfigurationError
from sembase.streams import write_err
from sembench.http.client import LiveClient
from sembench.http.reply import OK, LiveReply
from sembench.live.attempts import LiveProgress, end_attempt, has_failed, read_attempts, start_attempt, statuses_of
from sembench.live.engine import ConnectorAudit, Resets, describe_engine, metrics_since, scrape
from sembench.live.item_row import PromptSizes
from sembench.live.options import LiveRun
from sembench.live.session import LostConnectionError, RequestBuilder, Session, live_units, replay, warm_up
from sembench.manifest import WorkloadItem, manifest_digest, read_run_items
from sembench.metrics.rows import RequestRow
from sembench.replay.partial import PartialWriter, partial_path
from sembench.result import RunFacts, assemble, write_result
from semblend.contract import Evidence

T = TypeVar("T")
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
_LABEL: Final = "live replay"
_FAILURES_IN_A_ROW: Final = 5


class InterruptedRunError(Exception):
    """A signal ended the run. The message names the signal."""


@dataclass(frozen=True, slots=True)
class OpenRun:
    """A run whose server is ready: the session, and what the server is."""

    session: Session
    client: LiveClient
    engine: Mapping[str, Any]
    config: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Replayed:
    """A finished replay: its rows in the manifest's order, and their provenance."""

    rows: Sequence[RequestRow]
    manifest_digest: str
    opened: OpenRun
    server_metrics: Mapping[str, Any] | None
    attempts: Sequence[Mapping[str, Any]]


def run_live(run: LiveRun) -> dict[str, Any]:
    """Replays, writes the result atomically and returns it. A signal ends it with ``InterruptedRunError``."""
    return replay_manifest(run, lambda replayed: _write(run, replayed))


def replay_manifest(run: LiveRun, write: Callable[[Replayed], dict[str, Any]]) -> dict[str, Any]:
    """``write`` turns the rows into the output file; the partial rows are deleted only after it has returned."""
    run.require_valid()
    items = read_run_items(run.manifest, run.max_items)
    if run.only is not None:
        items = [item for item in items if item.item_id in run.only]
        if not items:
            raise ConfigurationError(f"{run.manifest} holds none of the items to measure")
    sizes = PromptSizes(run.options.tokenizer, run.options.block_size)
    return run_interruptibly(_replay(run, items, sizes, write))


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
        found, attempts = read_attempts(partial, identity) if run.resume else ([], [])
        rows = _known_rows(run, items, found)
        attempt = start_attempt(len(rows))
        before = await scrape(opened.client, run.metrics_url)
        units = live_units(items, rows.keys(), streams_apart=run.options.arms in ("warm", "paired"))
        header = {**identity, "sittings": [*attempts, attempt]}
        with PartialWriter(partial, header, list(rows.values())) as writer:
            names = ("first", "second") if run.options.arms == "cold_twice" else ("cold", "warm")
            progress = LiveProgress(_LABEL, len(items), list(rows.values()), names)
            replayed = replay(units, opened.session, run.options.concurrency)
            # Closed before the clients: an error here must not leave requests in flight.
            async with aclosing(replayed), aclosing(_guarded(replayed, run, len(items))) as measured:
                async for row in measured:
                    writer.append(row)
                    rows[row.item_id] = row
                    progress.add(row)
            progress.end()
            metrics = await metrics_since(before, opened.client, run.metrics_url)
            measured_rows = [rows[item.item_id] for item in items]
            attempts = [*attempts, end_attempt(attempt, measured_rows, datetime.now(UTC), "finished")]
            written = write(Replayed(measured_rows, digest, opened, metrics, attempts))
            writer.discard()
    return written


def _write(run: LiveRun, replayed: Replayed) -> dict[str, Any]:
    result = assemble(_facts(run, replayed), replayed.rows)
    write_result(run.output, result)
    return result


def _known_rows(run: LiveRun, items: Sequence[WorkloadItem], found: list[RequestRow]) -> dict[str, RequestRow]:
    """Rows of earlier attempts. Rows with a failed arm are measured again: the server may have caused the failure."""
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
    """Ends the run when the server is gone instead of filling the result with failures."""
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
    """False for 4xx: a rejected request (a prompt too long, say) is the manifest's fault and does not end the run."""
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
            "selected_items": None if run.only is None else len(run.only),
            "sittings": list(replayed.attempts),
            # Of this attempt alone.
            "preparation": {
                "donors": session.preparation.donors,
                "unregistered_donors": session.preparation.unregistered_donors if audit is not None else None,
                "refused_resets": session.preparation.failed_resets,
                "first_refusal": session.preparation.first_failed_reset or None,
                "damaged_audit_lines": audit.damaged if audit is not None else None,
                "missing_audit_events": audit.missing if audit is not None else None,
            },
            "server_metrics": replayed.server_metrics,
        },
    )


async def open_run(run: LiveRun, sizes: PromptSizes, stack: AsyncExitStack) -> OpenRun:
    """Waits for the server, tries every reset once and sends the warm-up: a failure here would affect every item."""
    chosen = run.options

    async def connect(url: str) -> LiveClient:
        client = LiveClient(
            url, timeout_s=run.timeout_s, max_connections=chosen.concurrency + 1, headers=dict(run.headers)
        )
        return await stack.enter_async_context(client)

    client = await connect(run.base_url)
    model = await client.wait_ready(run.ready_s)
    donor_client = client if run.donor_url is None else await connect(run.donor_url)
    if donor_client is not client:
        await donor_client.wait_ready(run.ready_s)
    requests = RequestBuilder(chosen, run.model or model, by_tenant=run.isolation == "tenant")

    async def poke() -> object:
        return await client.ask(requests.poke())

    audit = None
    if run.connector_audit:
        audit = ConnectorAudit(run.connector_audit, chosen.settle_ms / 1000, poke)
        stack.callback(audit.close)
    resets = Resets(client, run.reset_urls, poke)
    recipient_resets = Resets(client, run.recipient_reset_urls, poke)
    session = Session(client, donor_client, requests, resets, recipient_resets, sizes, chosen, audit)
    await resets.require("--reset-url")
    await recipient_resets.require("--recipient-reset-url")
    _check_cached_tokens(run, await warm_up(client, requests, run.options.warm_up, run.base_url))
    engine = await describe_engine(client, requests.model)
    return OpenRun(session, client, engine, run.config(sizes.describe(), requests.model))


def _check_cached_tokens(run: LiveRun, reply: LiveReply | None) -> None:
    if reply is not None and run.options.arms != "warm" and reply.cached_tokens is None:
        write_err(
            "sembench: note: the server does not report cached tokens, so cold arms cannot be checked "
            "(vLLM: --enable-prompt-tokens-details; SGLang: --enable-cache-report)\n"
        )


def run_interruptibly(work: Coroutine[Any, Any, T]) -> T:
    """Runs ``work`` to its end; a signal cancels it and raises ``InterruptedRunError`` once it has cleaned up."""
    return asyncio.run(_watched(work))


async def _watched(work: Coroutine[Any, Any, T]) -> T:
    loop = asyncio.get_running_loop()
    task = asyncio.ensure_future(work)
    received: list[signal.Signals] = []

    def stop(number: signal.Signals) -> None:
        received.append(number)
        task.cancel()

    for number in _SIGNALS:
        # Not available on every platform nor outside the main thread; Ctrl-C works there without it.
        with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
            loop.add_signal_handler(number, stop, number)
    try:
        return await task
    except asyncio.CancelledError:
        if received:
            raise InterruptedRunError(received[0].name) from None
        raise
    finally:
        for number in _SIGNALS:
            with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
                loop.remove_signal_handler(number)
