"""A whole load: wait for the server, warm up, scrape, send, scrape again; the result is ``sembench.load.v1``."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from sembase.errors import ConfigurationError
from sembase.streams import write_err
from sembench.http.client import Endpoint, LiveClient, LiveRequest
from sembench.http.prometheus import Scrape, difference, parse_scrape
from sembench.http.reply import OK
from sembench.load.collect import Collector, requests_path
from sembench.load.idle_cost import measure_idle_cost
from sembench.load.lag_probe import LagProbe
from sembench.load.loops import Limit, closed_loop, open_loop
from sembench.load.percentiles import summarize
from sembench.load.process import allow_sockets, quiet_collector
from sembench.load.progress import end_progress, report_progress
from sembench.load.prompts import PreparedPrompts, Prompt, PromptSource
from sembench.load.result import load_result
from sembench.load.sender import Sender
from sembench.load.summary import Slo, summarize_load

_WARM_UP_AT_A_TIME: Final = 8
_OUR_OWN_CONNECTIONS: Final = 2
_PREPARED: Final = 2000  # if nobody says how many will be sent


@dataclass(frozen=True, slots=True)
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
    sockets = allow_sockets(None if workers is None else workers + _OUR_OWN_CONNECTIONS)
    async with LiveClient(
        run.base_url, timeout_s=run.timeout_s, max_connections=sockets, headers=run.headers
    ) as client:
        model = await _model(client, run)
        idle_cost = await measure_idle_cost(client)
        warm_up = await _warm_up(client, run, model)
        prompts = PreparedPrompts(run.prompts, _PREPARED if run.limit.requests is None else run.limit.requests)
        before = await _scrape(client, run.metrics_url)
        with Collector(requests_path(run.output)) as collector:
            sender = Sender(
                client,
                lambda number: _live_request(run, model, f"load.{number}", prompts.get(number)),
                collector.keep,
            )
            driven = await _drive(run, sender, collector)
        metrics = None if before is None else await _meanwhile(client, run.metrics_url, before)
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
    """The measured part. Ctrl-C cancels what is in flight; each such request is recorded as cancelled."""
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
        except ExceptionGroup as group:  # such as a full disk, met by every request
            raise group.exceptions[0] from None
    return _Driven(cpu_s, probe.lags_ms, load.cancelled())


def _loop(run: LoadRun, sender: Sender) -> Coroutine[Any, Any, None]:
    if run.offsets_s is not None:
        return open_loop(sender, run.offsets_s, run.limit)
    assert run.first_offsets_s is not None
    return closed_loop(sender, run.first_offsets_s, run.limit)


@contextmanager
def _on_interrupt(act: Callable[[], None]) -> Iterator[None]:
    """A second Ctrl-C does what it always does."""
    loop = asyncio.get_running_loop()

    def once() -> None:
        loop.remove_signal_handler(signal.SIGINT)
        write_err("\nsembench: stopping; the answers so far are kept\n")
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
        raise ConfigurationError(f"{client.root_url} names no model; pass --model NAME")
    return model


async def _warm_up(client: LiveClient, run: LoadRun, model: str) -> dict[str, int]:
    """With prompts of its own, so that no measured prompt is cached by it. If all of them fail, so would the load."""
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


async def _scrape(client: LiveClient, url: str | None) -> Scrape | None:
    if url is None:
        return None
    code, body = await client.get(url)
    if code != 200:
        raise ConfigurationError(f"--metrics-url {url} answers {code}")
    return parse_scrape(body.decode("utf-8", "replace"), f"--metrics-url {url}")


async def _meanwhile(client: LiveClient, url: str | None, before: Scrape) -> dict[str, Any]:
    """A server that is gone after the load takes its counters with it, not the result."""
    try:
        after = await _scrape(client, url)
    except (ConnectionError, ConfigurationError) as error:
        return {"fault": str(error)}
    assert after is not None
    return difference(before, after).to_json()
