"""A whole load: wait for the server, warm up, scrape, send, scrape again. Out comes ``sembench.load.v1``."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from sembase.errors import ConfigurationError
from sembase.streams import write_err
from sembench.http.client import Endpoint, LiveClient, LiveRequest
from sembench.http.prometheus import Scrape
from sembench.http.reply import OK
from sembench.live.engine import metrics_change, scrape
from sembench.load.client_cost import LagProbe, allow_sockets, measure_idle_cost, quiet_collector
from sembench.load.prompts import PreparedPrompts, Prompt, PromptSource
from sembench.load.records import Collector, requests_path
from sembench.load.result import load_result
from sembench.load.schedule import Limit, Sender, closed_loop, open_loop
from sembench.load.summary import Slo, summarize, summarize_load, value_of

_WARM_UP_AT_A_TIME: Final = 8
_OWN_CONNECTIONS: Final = 2
_PREPARED: Final = 2000  # if the number of requests is not known
_SECONDS_BETWEEN_LINES: Final = 5.0
_SECONDS_ON_A_TERMINAL: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadRun:
    """Exactly one of ``offsets_s`` (open loop) and ``first_offsets_s`` (closed loop, one per worker) is given."""

    base_url: str
    model: str | None
    endpoint: Endpoint
    output: Path
    prompts: PromptSource
    warm_up_prompts: PromptSource
    limit: Limit
    slo: Slo
    timeout_s: float
    ready_s: float
    config: Mapping[str, Any]
    offsets_s: Iterable[float] | None = None
    first_offsets_s: tuple[float, ...] | None = None
    warm_up: int = 0
    ignore_eos: bool = False
    metrics_url: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


async def run_load(run: LoadRun) -> dict[str, Any]:
    workers = None if run.first_offsets_s is None else len(run.first_offsets_s)
    sockets = allow_sockets(None if workers is None else workers + _OWN_CONNECTIONS)
    async with LiveClient(
        run.base_url, timeout_s=run.timeout_s, max_connections=sockets, headers=run.headers
    ) as client:
        model = await _model(client, run)
        idle_cost = await measure_idle_cost(client)
        warm_up = await _warm_up(client, run, model)
        prompts = PreparedPrompts(run.prompts, _PREPARED if run.limit.requests is None else run.limit.requests)
        before = await scrape(client, run.metrics_url)
        with Collector(requests_path(run.output)) as collector:
            sender = Sender(
                client,
                lambda number: _live_request(run, model, f"load.{number}", prompts.get(number)),
                collector.keep,
            )
            driven = await _drive(run, sender, collector)
        metrics = None if before is None else await _metrics_since(client, run.metrics_url, before)
    return load_result(
        run={
            "complete": not driven.stopped,
            "stopped_by": "interrupt" if driven.stopped else None,
            "model": model,
            "endpoint": run.endpoint,
            "warm_up": warm_up,
            "requests_file": requests_path(run.output).name,
        },
        config=run.config,
        figures=summarize_load(collector.records, collector.gaps_ms, run.slo, sender.peak_in_flight),
        client={
            "event_loop_lag_ms": summarize(driven.lags_ms),
            "wire_ms": summarize([r.wire_ms for r in collector.records if r.wire_ms is not None]),
            "cpu_s": driven.cpu_s,
            "idle_cost": idle_cost,
        },
        server_metrics=metrics,
    )


@dataclass(frozen=True, slots=True)
class _Driven:
    cpu_s: float
    lags_ms: list[float]
    stopped: bool


async def _drive(run: LoadRun, sender: Sender, collector: Collector) -> _Driven:
    """The measured part. Ctrl-C cancels requests in flight; each is recorded as cancelled."""
    stop = asyncio.Event()
    with quiet_collector(), _on_interrupt(stop.set):
        async with LagProbe() as probe:
            cpu_s = time.process_time()
            sender.start = time.perf_counter()
            progress = asyncio.create_task(report_progress(sender, collector))
            load = asyncio.create_task(_loop(run, sender))
            stopping = asyncio.create_task(stop.wait())
            await asyncio.wait({load, stopping}, return_when=asyncio.FIRST_COMPLETED)
            for task in (stopping, progress, *(() if load.done() else (load,))):
                task.cancel()
            await asyncio.wait({load, stopping, progress})
            cpu_s = time.process_time() - cpu_s
    end_progress()
    if not load.cancelled():
        try:
            load.result()
        except ExceptionGroup as group:  # such as a full disk, which every request meets
            raise group.exceptions[0] from None
    return _Driven(cpu_s, probe.lags_ms, load.cancelled())


def _loop(run: LoadRun, sender: Sender) -> Coroutine[Any, Any, None]:
    if run.offsets_s is not None:
        return open_loop(sender, run.offsets_s, run.limit)
    assert run.first_offsets_s is not None
    return closed_loop(sender, run.first_offsets_s, run.limit)


@contextmanager
def _on_interrupt(act: Callable[[], None]) -> Iterator[None]:
    """Handles the first Ctrl-C; a second one interrupts as usual."""
    loop = asyncio.get_running_loop()

    def once() -> None:
        loop.remove_signal_handler(signal.SIGINT)
        write_err("\nsembench: stopping; the replies so far are kept\n")
        act()

    loop.add_signal_handler(signal.SIGINT, once)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)


async def _model(client: LiveClient, run: LoadRun) -> str:
    named = await client.wait_ready(run.ready_s)
    model = run.model or named
    if not model and run.endpoint != "sglang_generate":
        raise ConfigurationError(f"{client.root_url} reports no model; pass --model NAME")
    return model


async def _warm_up(client: LiveClient, run: LoadRun, model: str) -> dict[str, int]:
    """Uses its own prompts, so that no measured prompt is cached. If all of them fail, the load would fail too."""
    numbers = iter(range(run.warm_up))
    faults: list[str] = []

    async def work() -> None:
        for number in numbers:
            prompt = run.warm_up_prompts.get(number)
            reply = await client.ask(_live_request(run, model, f"warm-up.{number}", prompt))
            if reply.status != OK:
                faults.append(f"{reply.status}: {reply.detail}")

    await asyncio.gather(*(work() for _ in range(min(_WARM_UP_AT_A_TIME, run.warm_up))))
    if run.warm_up and len(faults) == run.warm_up:
        raise ConfigurationError(f"all {run.warm_up} warm-up requests failed, the first with {faults[0]}")
    return {"requests": run.warm_up, "failed": len(faults)}


def _live_request(run: LoadRun, model: str, request_id: str, prompt: Prompt) -> LiveRequest:
    extra: dict[str, Any] = {}
    if run.ignore_eos and run.endpoint == "sglang_generate":
        extra["sampling_params"] = {"temperature": 0.0, "max_new_tokens": prompt.max_tokens, "ignore_eos": True}
    elif run.ignore_eos:
        extra["ignore_eos"] = True
    return LiveRequest(
        request_id=request_id,
        prompt=prompt.text,
        max_tokens=prompt.max_tokens,
        model=model,
        endpoint=run.endpoint,
        tenant=prompt.tenant,
        template=prompt.template,
        extra=extra,
        keep_text=False,
    )


async def _metrics_since(client: LiveClient, url: str | None, before: Scrape) -> dict[str, Any]:
    """A server that is gone after the load costs only its counters, not the result."""
    try:
        after = await scrape(client, url)
    except (ConnectionError, ConfigurationError) as error:
        return {"fault": str(error)}
    assert after is not None
    return metrics_change(before, after)


async def report_progress(sender: Sender, collector: Collector) -> None:
    """Writes progress to stderr until cancelled: a line every few seconds, on a terminal one line in place."""
    terminal = sys.stderr.isatty()
    while True:
        await asyncio.sleep(_SECONDS_ON_A_TERMINAL if terminal else _SECONDS_BETWEEN_LINES)
        line = progress_line(sender, collector)
        write_err(f"\r\x1b[K{line}" if terminal else f"{line}\n")


def end_progress() -> None:
    if sys.stderr.isatty():
        write_err("\n")


def progress_line(sender: Sender, collector: Collector) -> str:
    elapsed_s, done = sender.elapsed_s(), len(collector.records)
    parts = [f"load: {elapsed_s:.0f} s", f"{done} done", f"{sender.in_flight} in flight"]
    if collector.failed:
        parts.append(f"{collector.failed} FAILED")
    parts.append(f"{done / elapsed_s:.1f} req/s" if elapsed_s > 0 else "")
    recent = list(collector.recent)
    for title, values in (
        ("TTFT", [r.ttft_ms for r in recent if r.ok and r.ttft_ms is not None]),
        ("TPOT", [r.tpot_ms for r in recent if r.ok and r.tpot_ms is not None]),
        ("late", [r.lateness_ms for r in recent if r.lateness_ms is not None]),
    ):
        summary = summarize(values)
        if summary is not None:
            parts.append(f"{title} p50 {value_of(summary, 50):.1f} p99 {value_of(summary, 99):.1f} ms")
    return ", ".join(filter(None, parts))
