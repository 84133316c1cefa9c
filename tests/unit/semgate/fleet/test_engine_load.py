from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from tests.fakes.fault_replica import FaultReplica
from tests.waiting import PATIENCE_S, until

from semgate.fleet import Endpoint, Fleet, Replica
from semgate.fleet.engine_load import TARGETS, EngineLoad, read_load
from semgate.fleet.load_reports import LoadReports


def vllm_page(running: float, waiting: float, usage: float, prefills: list[float], ranks: int = 1) -> bytes:
    registry, labels = CollectorRegistry(), ["model_name", "engine"]
    gauges = {
        name: Gauge(f"vllm:{name}", "Help with a vllm:num_requests_running 9 in it.", labels, registry=registry)
        for name in ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc")
    }
    by_reason = Gauge("vllm:num_requests_waiting_by_reason", "Help.", [*labels, "reason"], registry=registry)
    computed = Histogram("vllm:request_prefill_kv_computed_tokens", "Help.", labels, registry=registry)
    for rank in range(ranks):
        for name, value in zip(gauges, (running, waiting, usage), strict=True):
            gauges[name].labels("a}model", str(rank)).set(value)
        by_reason.labels("a}model", str(rank), "capacity").set(77)
        for each in prefills:
            computed.labels("a}model", str(rank)).observe(each)
    return generate_latest(registry)


def sglang_page(running: float, queued: float, usage: float, requests: int, prompt: int, cached: int) -> bytes:
    registry = CollectorRegistry()
    for name, value in (("num_running_reqs", running), ("num_queue_reqs", queued), ("token_usage", usage)):
        Gauge(f"sglang:{name}", "Help.", ["model_name"], registry=registry).labels("m").set(value)
    for name, count in (("num_requests", requests), ("prompt_tokens", prompt), ("cached_tokens", cached)):
        Counter(f"sglang:{name}", "Help.", ["model_name"], registry=registry).labels("m").inc(count)
    return generate_latest(registry)


def by_library(page: bytes, name: str) -> list[float]:
    families = text_string_to_metric_families(page.decode())
    return [sample.value for family in families for sample in family.samples if sample.name == name]


@given(
    running=st.integers(0, 500),
    waiting=st.integers(0, 500),
    usage=st.floats(0.0, 1.0),
    prefills=st.lists(st.integers(0, 5_000).map(float), max_size=4),
    ranks=st.integers(1, 3),
)
def test_it_reads_what_a_full_parser_reads(
    running: int, waiting: int, usage: float, prefills: list[float], ranks: int
) -> None:
    page = vllm_page(running, waiting, usage, prefills, ranks)
    load = read_load(page)
    assert load is not None
    assert load.running == sum(by_library(page, "vllm:num_requests_running"))
    assert load.waiting == sum(by_library(page, "vllm:num_requests_waiting"))
    assert load.kv_usage == max(by_library(page, "vllm:kv_cache_usage_perc"))
    count = sum(by_library(page, "vllm:request_prefill_kv_computed_tokens_count"))
    tokens = sum(by_library(page, "vllm:request_prefill_kv_computed_tokens_sum"))
    assert load.prefill_tokens == pytest.approx(tokens / count if count else 0.0)


def test_sglang_names_are_read_and_cached_tokens_are_no_prefill() -> None:
    load = read_load(sglang_page(3, 2, 0.5, requests=4, prompt=4_000, cached=1_000))
    assert load == EngineLoad(3, 2, 0.5, 750.0)


@pytest.mark.parametrize(
    "page",
    [b"", b"process_cpu_seconds_total 1.0\n", b"vllm:num_requests_running{} NaN\nvllm:num_requests_waiting{} 1\n"],
)
def test_a_page_without_the_numbers_is_no_report(page: bytes) -> None:
    assert read_load(page) is None


@given(st.binary(max_size=300))
def test_no_page_raises(page: bytes) -> None:
    read_load(page)
    read_load(b"vllm:num_requests_running " + page)


def replica_at(origin: str = "http://h:1") -> Replica:
    fleet = Fleet()
    fleet.apply([Endpoint("a", origin)])
    (replica,) = fleet
    return replica


def test_only_what_exceeds_our_own_requests_is_foreign() -> None:
    replica = replica_at()
    first, _second = replica.begin(100), replica.begin(50)
    first.first_token()
    replica.report_load(EngineLoad(2, 1, 0.1, 400.0))
    assert replica.foreign_requests == 1
    assert (replica.view().in_flight, replica.view().queued_prefill_tokens) == (3, 50)  # the one that waits is ours
    replica.report_load(EngineLoad(1, 4, 0.1, 400.0))
    assert (replica.view().in_flight, replica.view().queued_prefill_tokens) == (5, 50 + 3 * 400)
    assert replica.begin(10).tokens_ahead == 50 + 3 * 400
    replica.report_load(None)
    assert (replica.view().in_flight, replica.view().queued_prefill_tokens) == (3, 60)


@given(
    reported=st.tuples(st.integers(0, 50), st.integers(0, 50)),
    ours=st.lists(st.tuples(st.integers(1, 500), st.booleans()), max_size=20),
)
def test_reports_never_hide_our_own_load_nor_count_it_twice(
    reported: tuple[int, int], ours: list[tuple[int, bool]]
) -> None:
    replica = replica_at()
    for tokens, is_computed in ours:
        ticket = replica.begin(tokens)
        if is_computed:
            ticket.first_token()
    before = replica.view()
    replica.report_load(EngineLoad(*reported, 0.5, 100.0))
    after = replica.view()
    assert after.in_flight == max(before.in_flight, sum(reported))
    added = after.queued_prefill_tokens - before.queued_prefill_tokens
    assert 0 <= added <= 100 * min(reported[1], after.in_flight - before.in_flight)


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, PATIENCE_S))


@asynccontextmanager
async def reporting(pages: dict[str, bytes]) -> AsyncIterator[tuple[FaultReplica, Replica, LoadReports]]:
    engine = FaultReplica(pages=pages)
    await engine.start()
    replica = replica_at(engine.origin)
    reports = LoadReports(lambda: [replica], 0.2)
    try:
        yield engine, replica, reports
    finally:
        await reports.close()
        await engine.die()


def asked(reports: LoadReports, condition: Callable[[], object], now_s: float = 0.0) -> Callable[[], object]:
    """The condition, after one more round of requests."""

    def ask() -> object:
        reports.ask_all(now_s)
        return condition()

    return ask


@pytest.mark.parametrize("target", TARGETS)
def test_it_finds_the_page_an_engine_has_and_stays_with_it(target: str) -> None:
    async def work() -> None:
        async with reporting({target: vllm_page(3, 2, 0.25, [10.0])}) as (engine, replica, reports):
            await until(asked(reports, lambda: reports.read >= 3))
            assert replica.engine_load == EngineLoad(3, 2, 0.25, 10.0)
            engine.pages[target] = vllm_page(4, 0, 0.5, [10.0])
            await until(asked(reports, lambda: replica.engine_load == EngineLoad(4, 0, 0.5, 10.0)))
            assert list(engine.read)[-4:] == [target] * 4
            assert engine.connections == 1

    run(work())


def test_a_replica_without_metrics_is_asked_again_later_and_one_that_stops_is_not_believed() -> None:
    async def work() -> None:
        async with reporting({}) as (engine, replica, reports):
            await until(asked(reports, lambda: reports.failed == 2))
            now_s = asyncio.get_running_loop().time()
            for _ in range(20):
                reports.ask_all(now_s)
                await asyncio.sleep(0)
            assert list(engine.read) == list(TARGETS)
            engine.pages[TARGETS[0]] = vllm_page(1, 0, 0.0, [])
            await until(asked(reports, lambda: replica.engine_load is not None, now_s + 60.0))
            engine.pages.clear()
            await until(asked(reports, lambda: replica.engine_load is None, now_s + 60.0))

    run(work())


def test_an_engine_that_went_away_is_not_believed_and_read_again_after_its_return() -> None:
    async def work() -> None:
        async with reporting({TARGETS[0]: vllm_page(1, 0, 0.0, [])}) as (engine, replica, reports):
            await until(asked(reports, lambda: replica.engine_load is not None))
            await engine.die()
            later_s = asyncio.get_running_loop().time() + 3_600.0
            await until(asked(reports, lambda: replica.engine_load is None, later_s))
            await engine.start()
            await until(asked(reports, lambda: replica.engine_load is not None, later_s))

    run(work())


def test_an_idle_replica_is_asked_once_a_second_and_a_busy_one_at_every_interval() -> None:
    async def rounds(engine: FaultReplica, reports: LoadReports, *, from_s: float) -> int:
        """Requests in ten seconds of the clock, each answered before the next round."""
        before = len(engine.read)
        for number in range(50):
            reports.ask_all(from_s + 0.2 * number)
            await until(lambda: not any(reader.is_asking for reader in reports._readers.values()))
        return len(engine.read) - before

    async def work() -> None:
        async with reporting({TARGETS[0]: vllm_page(0, 0, 0.25, [10.0])}) as (engine, replica, reports):
            assert await rounds(engine, reports, from_s=0.0) == 10
            ticket = replica.begin(100)
            assert await rounds(engine, reports, from_s=100.0) == 50, "a request of this router is in flight"
            ticket.end("ok")
            engine.pages[TARGETS[0]] = vllm_page(1, 0, 0.25, [10.0])
            assert await rounds(engine, reports, from_s=200.0) >= 46, "another one's, seen within a second"
            engine.pages[TARGETS[0]] = vllm_page(0, 0, 0.25, [10.0])
            assert await rounds(engine, reports, from_s=300.0) <= 11

    run(work())


def test_a_replica_that_left_is_no_longer_asked() -> None:
    async def work() -> None:
        async with reporting({TARGETS[0]: vllm_page(1, 0, 0.0, [])}) as (engine, replica, _):
            replicas = [replica]
            reports = LoadReports(lambda: replicas, 0.2)
            await until(asked(reports, lambda: reports.read > 0))
            replicas.clear()
            reports.ask_all(0.0)
            asked_before = len(engine.read)
            for number in range(20):
                reports.ask_all(60.0 * number)
                await asyncio.sleep(0)
            assert len(engine.read) == asked_before
            await reports.close()
            await until(lambda: engine.connections == 0)

    run(work())
