"""Dashboard and alerts name only series that router, proxy and connector export, and a real Prometheus answers them.

Prometheus and promtool: ``python -m scripts.engines.prometheus``; tests that need them are skipped without.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import prometheus_client
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from scripts.dashboard import ROWS, dashboard, queries
from scripts.engines.prometheus import binary_of
from tests.fakes.fault_replica import FaultReplica
from tests.fakes.kv_publisher import BLOCK, EnginePool, KvPublisher
from tests.fakes.raw_client import ask, chat
from tests.fakes.router_rig import router_rig
from tests.waiting import PATIENCE_S, until

from sembase.http.server import HttpServer
from semblend.contract import Declined, DeclineReason, FaultContained
from semblend.integration.core.metrics import MetricsRecorder, PrometheusFamilies
from semgate.fleet.engine_load import TARGETS
from semgate.http.served_paths import status_app
from semgate.proxy.service import ProxyService
from semgate.settings import ProxySettings

FOLDER = Path(__file__).parents[3] / "deploy" / "observability"
LOAD = b"vllm:num_requests_running 1.0\nvllm:num_requests_waiting 0.0\nvllm:kv_cache_usage_perc 0.5\n"
OF_PROMETHEUS = {"job", "instance", "pod"}  # added by a scrape
NEEDS_PROMETHEUS = pytest.mark.skipif(
    binary_of("prometheus") is None, reason="Prometheus is not here: python -m scripts.engines.prometheus"
)


def alerts() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load((FOLDER / "alerts.yaml").read_text(encoding="utf-8"))["groups"]
    return list(group["rules"])


def expressions() -> Iterator[str]:
    yield from queries()
    yield from (each["expr"] for each in alerts())


@asynccontextmanager
async def watched(folder: Path) -> AsyncIterator[tuple[int, ...]]:
    """A router with events, load reports, one failing replica and one retry, a proxy, an engine; their status ports."""
    async with KvPublisher() as publisher:
        at = f";events={publisher.endpoint};replay={publisher.replay_endpoint}"
        options: dict[str, Any] = {"routing_policy": "precise_prefix", "block_tokens": BLOCK, "engine_tokenize": True}
        options["shared_state_url"] = "valkey://127.0.0.1:1"  # answers nothing: the state of being down is exported
        async with router_rig(folder, announced={"a": at}, load_seconds=0.05, **options) as rig:
            await publisher.subscribed()
            await publisher.publish(EnginePool().store(list(range(64))))
            for each in rig.replicas:
                each.pages[TARGETS[0]] = LOAD
            rig.replica("b").mode = "die_on_request"
            gateway, upstream = rig.gateway, FaultReplica(name="upstream")
            await upstream.start()
            proxy = ProxyService(ProxySettings(upstream_base_url=upstream.origin, trace_output_dir=folder / "traces"))
            servers = [
                HttpServer(status_app(gateway.readiness, gateway.metrics.text), host="127.0.0.1", port=0),
                HttpServer(status_app(proxy.app.readiness, proxy.telemetry.text), host="127.0.0.1", port=0),
                HttpServer(status_app(proxy.app.readiness, engine_metrics()), host="127.0.0.1", port=0),
                HttpServer(proxy, host="127.0.0.1", port=0),
            ]
            stopped = asyncio.Event()
            try:
                *status, proxy_port = [await each.start() for each in servers]

                async def traffic() -> None:
                    while not stopped.is_set():
                        await ask(
                            rig.port, "/v1/completions", {"model": "m", "stream": True, "prompt": list(range(64))}
                        )
                        for port in (rig.port, proxy_port):
                            await ask(port, body=chat())
                        await asyncio.sleep(0.1)

                running = asyncio.create_task(traffic())
                metrics = gateway.metrics.text
                await until(lambda: b"semgate_retries_total{" in metrics() and b"semgate_engine_running{" in metrics())
                yield tuple(status)
                stopped.set()
                await running
            finally:
                for server in servers:
                    await server.stop()
                await proxy.stop()
                await upstream.die()


def engine_metrics() -> Callable[[], bytes]:
    """The page of a vLLM server with the connector, where each scrape finds one more request of each kind."""
    registry = prometheus_client.CollectorRegistry()
    counter = partial(prometheus_client.Counter, registry=registry)
    histogram = partial(prometheus_client.Histogram, registry=registry)

    def gauge(multiprocess_mode: str, **options: Any) -> prometheus_client.Gauge:
        return prometheus_client.Gauge(registry=registry, **options)

    families = PrometheusFamilies(
        "vllm", ["engine"], counter=counter, histogram=histogram, gauge=gauge, registered=lambda name: None
    )
    families.show_zeros(["0"])
    prompt_tokens = counter("vllm:prompt_tokens", "vLLM's own.", ["engine"]).labels("0")

    def text() -> bytes:
        recorder = MetricsRecorder()
        recorder.record_lookup(0.001)
        recorder.record_load(900, 100, 0.01, 0.1)
        recorder.record_repair(100, 0.1)
        recorder.add("published_tokens", 96)
        recorder.add("evicted_donors", 1)
        recorder.record(Declined("r", DeclineReason.NO_CANDIDATE))
        recorder.record(FaultContained("r", "load", "broken"))
        recorder.set_gauges(donors=7, host_bytes=4096)
        families.observe(recorder.data, ["0"])
        prompt_tokens.inc(2000)
        return prometheus_client.generate_latest(registry)

    return text


async def exported(*ports: int) -> dict[str, set[str]]:
    """Names of samples and their labels. A family without samples yet has the names that its kind will give it."""
    found: dict[str, set[str]] = {}
    for port in ports:
        page = (await ask(port, "/metrics", method="GET")).body.decode()
        for family in text_string_to_metric_families(page):
            for sample in family.samples:
                found.setdefault(sample.name, set()).update(sample.labels)
            if family.type == "counter":
                found.setdefault(f"{family.name}_total", set())
    return found


def unknown(known: dict[str, set[str]]) -> list[str]:
    """The expressions with a series or a label that is not exported."""
    found = []
    for expression in expressions():
        names = set(re.findall(r"\b(?:semgate_|vllm:)\w+", expression))
        assert names, expression
        labels = {word for part in re.findall(r"by \(([^)]*)\)", expression) for word in part.split(", ")}
        labels |= set(re.findall(r"[{,]\s*(\w+)\s*(?:=~|!=|=)", expression))
        having = [known[name] for name in names if known.get(name)]
        if not names <= set(known) or (having and not labels <= set().union(*having, OF_PROMETHEUS)):
            found.append(expression)
    return found


def test_every_series_of_the_dashboard_and_the_alerts_is_exported(tmp_path: Path) -> None:
    """Some series begin with the first answer of their kind, so the traffic continues until all are there."""

    async def act() -> None:
        async with watched(tmp_path) as ports:
            missing = unknown(await exported(*ports))

            async def all_exported() -> None:
                while missing:
                    missing[:] = unknown(await exported(*ports))

            try:
                await asyncio.wait_for(all_exported(), 2 * PATIENCE_S)
            except TimeoutError:
                pytest.fail(f"never exported: {missing}")

    asyncio.run(asyncio.wait_for(act(), 4 * PATIENCE_S))


def test_the_dashboard_begins_with_what_is_reused() -> None:
    """The owner of a server looks for this first; a server without a gateway has nothing else to show."""
    first, *others = ROWS
    assert first.title == "KV reuse"
    assert all("vllm:semblend_" in query for panel in first.panels for query in panel.queries.values())
    assert not any("vllm:" in query for row in others for panel in row.panels for query in panel.queries.values())


def test_the_dashboard_is_what_the_code_makes() -> None:
    text = (FOLDER / "dashboard.json").read_text(encoding="utf-8")
    assert text == dashboard(), "run python -m scripts.generate_docs"
    panels = [panel for panel in json.loads(text)["panels"] if panel["type"] != "row"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert [target["expr"] for panel in panels for target in panel["targets"]] == list(queries())


@pytest.mark.skipif(binary_of("promtool") is None, reason="promtool is not here")
def test_each_alert_fires_on_its_fault_and_none_on_a_healthy_fleet() -> None:
    tested = (FOLDER / "alerts.test.yaml").read_text(encoding="utf-8")
    assert [each["alert"] for each in alerts() if tested.count(each["alert"]) < 2] == []
    run = subprocess.run(
        [str(binary_of("promtool")), "test", "rules", str(FOLDER / "alerts.test.yaml")],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert run.returncode == 0, run.stdout + run.stderr


@NEEDS_PROMETHEUS
def test_a_real_prometheus_answers_every_panel_and_loads_every_alert(tmp_path: Path) -> None:
    async def act() -> None:
        async with watched(tmp_path) as ports, prometheus(tmp_path, *ports) as port:
            waiting = {each.replace("$__rate_interval", "20s").replace("$job", ".*") for each in queries()}

            async def all_answered() -> None:
                while waiting:
                    for query in tuple(waiting):
                        answer = await api(port, "query", query=query)
                        assert answer["status"] == "success", (query, answer)
                        if answer["data"]["result"]:
                            waiting.discard(query)
                    await asyncio.sleep(0.5)

            try:
                await asyncio.wait_for(all_answered(), 2 * PATIENCE_S)
            except TimeoutError:
                pytest.fail(f"no data: {sorted(waiting)}")
            (group,) = (await api(port, "rules"))["data"]["groups"]
            assert {each["name"] for each in group["rules"]} == {each["alert"] for each in alerts()}
            assert [each["name"] for each in group["rules"] if each["health"] == "err"] == []

    asyncio.run(asyncio.wait_for(act(), 4 * PATIENCE_S))


async def api(port: int, what: str, **parameters: str) -> dict[str, Any]:
    reply = await ask(port, f"/api/v1/{what}?{urlencode(parameters)}", method="GET")
    found = json.loads(reply.body)
    assert isinstance(found, dict)
    return found


@asynccontextmanager
async def prometheus(folder: Path, *targets: int) -> AsyncIterator[int]:
    """Scrapes the ports every second and loads our alerts."""
    settings = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(FOLDER / "alerts.yaml")],
        "scrape_configs": [
            {"job_name": "semgate", "static_configs": [{"targets": [f"127.0.0.1:{port}" for port in targets]}]}
        ],
    }
    path = folder / "prometheus.json"  # JSON is YAML
    path.write_text(json.dumps(settings), encoding="utf-8")
    log = folder / "prometheus.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [
                str(binary_of("prometheus")),
                f"--config.file={path}",
                f"--storage.tsdb.path={folder / 'tsdb'}",
                "--web.listen-address=127.0.0.1:0",
            ],
            stdout=out,
            stderr=out,
        )
    try:
        found: list[str] = []

        def listening() -> bool:
            assert process.poll() is None, log.read_text(encoding="utf-8")
            found[:] = re.findall(r"Listening on\" address=127\.0\.0\.1:(\d+)", log.read_text(encoding="utf-8"))
            return bool(found)

        await until(listening)
        await until_ready(int(found[0]))
        yield int(found[0])
    finally:
        process.kill()
        process.wait()


async def until_ready(port: int) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while (await ask(port, "/-/ready", method="GET")).status != 200:
            await asyncio.sleep(0.1)
