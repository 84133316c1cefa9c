"""Builds the parts of a router from its settings, starts them and stops them in order.

In: router settings and a function that reloads them; out: the parts the apps use. One per process and event loop.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from pathlib import Path
from typing import Any, Final

from sembase.http.client import HttpClient, HttpFault
from sembase.kept_task import KeptTask
from semgate.fleet import HealthChecks, HealthOptions, Replica
from semgate.fleet.confirmation import Confirmation
from semgate.fleet.load_reports import LoadReports
from semgate.fleet.models import ModelPools, models_of
from semgate.http.client_keys import ClientKeys
from semgate.http.request_body import Asked
from semgate.http.tenant import UNKNOWN_TENANT
from semgate.logs import LOGGER, log
from semgate.placement.cost import price_from_calibration
from semgate.placement.placer import Placer
from semgate.placement.policy.interface import PolicyOptions
from semgate.placement.view import PlacementRequest
from semgate.prompt.digest import Digests
from semgate.router.operations.replicas import ReadSettings, Reloader, kubernetes_watch
from semgate.router.operations.settings_check import check_settings, donors_key, publisher_curve
from semgate.router.operations.warm_up import warm_up
from semgate.router.request.evidence import EvidenceCollector, EvidenceOptions
from semgate.router.request.forward import Forwarder
from semgate.router.request.inspection import RequestInspector
from semgate.router.request.placement import PlaceRequest, placements_for
from semgate.router.request.token_source import open_tokens
from semgate.router.request.trace import RequestTrace
from semgate.router.state.decisions import DecisionLog, DecisionRing
from semgate.router.state.known_blocks import KnownBlocks
from semgate.router.state.known_donors import KnownDonors
from semgate.router.state.metrics import RouterMetrics, Sample
from semgate.router.state.roster import Roster
from semgate.router.state.shared import SharedState
from semgate.router.state.state_log import StateLog
from semgate.settings import RouterSettings

PROBE_SECONDS: Final = 2.0
STATE_SECONDS: Final = 1.0
CATCH_UP_SECONDS: Final = 10.0  # at most, that a starting router waits to know what replicas announced before
_JSON: Final = ((b"content-type", b"application/json"),)
_MAX_MODELS_BYTES: Final = 1 << 20
_WARNED_OUTCOMES: Final = ("cut", "refused")


class Gateway:
    def __init__(
        self,
        settings: RouterSettings,
        secret: bytes,
        *,
        reload_settings: ReadSettings | None = None,
        config: Path | None = None,
    ) -> None:
        self.settings = settings
        self.metrics = RouterMetrics()
        self.ring = DecisionRing(settings.decision_ring)
        self.inspector = RequestInspector(
            secret,
            trust_tenant_header=settings.trust_tenant_header,
            inject_cache_salt=settings.inject_cache_salt,
            allow_engine_fields=settings.allow_engine_fields,
        )
        self.clients = None if settings.client_keys_file is None else ClientKeys(settings.client_keys_file)
        credentials = settings.upstream_credentials()
        self._upstream = HttpClient(
            connect_seconds=settings.connect_seconds,
            first_byte_seconds=settings.first_byte_seconds,
            idle_seconds=settings.idle_seconds,
            max_connections_per_origin=settings.max_connections_per_replica,
            credentials=credentials,
        )
        price = None if settings.latency_model is None else price_from_calibration(settings.latency_model)
        fetches = PolicyOptions(fetch_ms=settings.fetch_ms, fetch_ms_per_token=settings.fetch_ms_per_token)
        self.placer = Placer(settings.routing_policy, options=fetches, price=price)
        self.evidence = EvidenceCollector(
            self.placer,
            open_tokens(settings, self._upstream, self.placer.needs, lambda: self.roster),
            KnownBlocks(
                settings.index_blocks,
                settings.history_seconds,
                publisher_curve(settings, settings.events_server_key_file),
            ),
            KnownDonors(
                None if settings.donors_key_file is None else donors_key(settings.donors_key_file),
                publisher_curve(settings, settings.donors_server_key_file),
            ),
            EvidenceOptions(
                settings.block_tokens,
                settings.model_tokens,
                reveals_announced=settings.inject_cache_salt or settings.tell_shared_evidence,
            ),
        )
        self.roster = Roster((self.evidence, self.metrics))
        self.reloader = Reloader(settings, self.roster, self.metrics, reload_settings)
        self.is_stopping = False
        self._is_warm = False
        self._has_caught_up = False
        self._started_s = time.monotonic()
        self._has_checked = settings.health_seconds <= 0
        self._config = config
        self._digests = Digests(secret)
        self._log = DecisionLog(
            settings.routing_output_dir, files=settings.decision_files, file_bytes=settings.decision_file_bytes
        )
        self._probes = HttpClient(
            connect_seconds=PROBE_SECONDS,
            first_byte_seconds=PROBE_SECONDS,
            idle_seconds=PROBE_SECONDS,
            max_connections_per_origin=4,
            credentials=credentials,
        )
        self.forwarder = Forwarder(
            self._upstream,
            max_attempts=max(settings.max_attempts, 1),
            retry_fraction=settings.retry_fraction,
            min_first_byte_s=settings.min_first_byte_ms / 1e3,
        )
        self._confirmation = Confirmation(self._answers)
        self.models = ModelPools(self.roster.fleet, self._list_models)
        self._reports = LoadReports(lambda: self.roster.fleet, settings.load_seconds, credentials)
        self._shared = SharedState(settings, secret, self.evidence.blocks, self.roster, self.placer.homes, self.clients)
        self.metrics.observe(self._samples)
        self._tasks: list[KeptTask] = []

    async def start(self) -> None:
        settings = self.settings
        check_settings(settings)
        if self.evidence.reads_tokens:
            await asyncio.to_thread(warm_up)
        if settings.discovery == "static":
            self.reloader.set_replicas(settings.replicas, "start")
        else:
            self._keep("kubernetes discovery", kubernetes_watch(settings, self.roster).run)
        for name, run in self._shared.tasks():
            self._keep(name, run)
        self._log.start()
        self._keep("replica states", self._watch_states)
        if settings.health_seconds > 0:
            self._keep("health checks", self._watch_health)
            self._keep("models", self._watch_models)
        if settings.load_seconds > 0:
            self._keep("load reports", self._reports.run)
        if self._config is not None and settings.reload_seconds > 0:
            self._keep("settings file", partial(self.reloader.watch, self._config, settings.reload_seconds))
        await self._shared.restored()
        self._is_warm = True

    def _keep(self, name: str, run: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Runs a background task; one that fails is logged and restarted."""
        self._tasks.append(KeptTask(name, run, lambda: None))

    async def stop(self) -> None:
        self.is_stopping = True
        await asyncio.gather(*(task.stop() for task in self._tasks))
        self._tasks.clear()
        await self._shared.close()
        await self._reports.close()
        await self._confirmation.close()
        await self._upstream.close()
        await self._probes.close()
        await self.evidence.close()
        await asyncio.to_thread(self._log.close)

    def not_ready_because(self) -> str | None:
        if self.is_stopping:
            return "shutting down"
        if not self._is_warm:
            return "warming up"
        if not self._has_checked:
            return "the replicas are being checked for the first time"
        if not any(_can_serve(replica) for replica in self.roster.fleet):
            return "no replica is ready"
        if not self._knows_earlier_blocks():
            return "what replicas announced before is being read"
        return None

    def _knows_earlier_blocks(self) -> bool:
        """False only at the start, for a while: requests placed without them miss the caches that hold their prefix."""
        if not self._has_caught_up:
            is_late = time.monotonic() - self._started_s > CATCH_UP_SECONDS
            self._has_caught_up = is_late or not self.evidence.blocks.is_catching_up
        return self._has_caught_up

    def readiness(self) -> dict[str, str]:
        reason = self.not_ready_because()
        return {"status": "ready"} if reason is None else {"status": "not ready", "reason": reason}

    def placements(
        self, request: PlacementRequest, allowed: frozenset[str] | None = None, model: str | None = None
    ) -> PlaceRequest:
        """``allowed``: names of the replicas to choose from; None: all. Of these, the ones that serve ``model``."""
        pool = self.models.serving(model)
        if pool is not None:
            allowed = pool if allowed is None else pool & allowed
        return placements_for(request, self.placer, self.roster, self.evidence, self._confirmation, allowed)

    def finished(self, asked: Asked, trace: RequestTrace) -> None:
        """Called at the end of every request that reached placement, whatever its outcome."""
        tenant = asked.tenant or UNKNOWN_TENANT
        session = asked.session
        record = trace.record(
            asked,
            tenant_digest=self._digests.of(tenant, "tenant", b""),
            session_digest=None if session is None else self._digests.of(tenant, "session", session.encode()),
        )
        self.ring.add(record)
        self._log.add(record)
        self.metrics.finished(record)
        level = logging.WARNING if record.outcome in _WARNED_OUTCOMES else logging.DEBUG
        if LOGGER.isEnabledFor(level):
            log(
                level,
                f"request {record.outcome}",
                request_id=record.request_id,
                replica=record.replica,
                route=record.route,
                status=record.status,
                attempts=[(each.replica, each.fault or each.status) for each in record.attempts],
                total_ms=record.total_ms,
            )

    async def _watch_states(self) -> None:
        states = StateLog()
        while True:
            states.note(self.roster.fleet)
            await asyncio.sleep(STATE_SECONDS)

    async def _watch_health(self) -> None:
        options = HealthOptions(interval_s=self.settings.health_seconds, timeout_s=2 * PROBE_SECONDS)
        checks = HealthChecks(self.roster.fleet, self._probe, options)
        while True:
            await checks.check_all()
            self.roster.note_health()
            self._has_checked = True
            self.evidence.note_block_size()
            await asyncio.sleep(self.settings.health_seconds)

    async def _watch_models(self) -> None:
        while True:
            await self.models.read_all()
            await asyncio.sleep(self.settings.health_seconds)

    async def _list_models(self, origin: str) -> bytes | None:
        try:
            status, page = await self._probes.fetch("GET", f"{origin}/v1/models", max_bytes=_MAX_MODELS_BYTES)
        except HttpFault:
            return None
        return page if status == 200 else None

    async def _probe(self, origin: str) -> bool:
        """vLLM and SGLang answer /health; a 404 of another server also shows that it is up."""
        try:
            reply = await self._probes.send(origin, "GET", "/health", (), b"")
            async for _ in reply.chunks():
                pass
        except HttpFault:
            return False
        return reply.status < 500

    async def _answers(self, origin: str) -> bool:
        """A stream of one token of the replica's own model. Only an error of the replica counts; a slow one is busy."""
        try:
            status, found = await self._probes.fetch("GET", f"{origin}/v1/models", max_bytes=_MAX_MODELS_BYTES)
            if status < 400:
                model = next(iter(models_of(found) or ()), "")
                body = json.dumps({"model": model, "prompt": "1", "max_tokens": 1, "stream": True}).encode()
                url = f"{origin}/v1/completions"
                status, _ = await self._probes.fetch("POST", url, headers=_JSON, body=body)
        except HttpFault as fault:
            return fault.kind in ("timeout", "no_connection")
        return status < 500

    def _samples(self) -> Iterable[Sample]:
        for each in self.roster.fleet:
            labels = {"replica": each.name}
            yield "gauge", "semgate_replica_in_flight", "Requests in flight on a replica.", labels, each.in_flight
            yield (
                *("gauge", "semgate_replica_queued_prefill_tokens", "Prefill tokens sent and not yet computed."),
                *(labels, each.queued_prefill_tokens),
            )
            up = float(each.state() == "ready")
            yield "gauge", "semgate_replica_ready", "1 if the replica accepts requests.", labels, up
            yield "counter", "semgate_breaker_opened", "Times the breaker opened.", labels, each.breaker.opened
            yield from _load_samples(each, labels)
        reports = self._reports
        yield "counter", "semgate_load_reports_read", "Load reports read from engines.", {}, reports.read
        yield "counter", "semgate_load_reports_failed", "Load reports that could not be read.", {}, reports.failed
        yield from self._shared.samples()
        yield from self.evidence.samples(self.roster.fleet)
        yield "gauge", "semgate_decisions_kept", "Decisions kept in memory.", {}, len(self.ring)
        yield (
            "counter",
            "semgate_decision_log_dropped",
            "Decisions dropped because the queue was full.",
            {},
            self._log.dropped,
        )
        yield "counter", "semgate_decision_log_failed", "Decisions lost to write errors.", {}, self._log.failed
        yield "gauge", "semgate_sessions", "Sessions with a known last replica.", {}, self.placer.sessions


def _load_samples(replica: Replica, labels: dict[str, str]) -> Iterable[Sample]:
    """What the engine reports of itself; nothing for one that does not."""
    load = replica.engine_load
    if load is None:
        return
    yield "gauge", "semgate_engine_running", "Requests running on the engine, as it reports.", labels, load.running
    yield "gauge", "semgate_engine_waiting", "Requests waiting on the engine, as it reports.", labels, load.waiting
    yield "gauge", "semgate_engine_kv_usage", "Used fraction of the engine's KV cache.", labels, load.kv_usage
    yield (
        *("gauge", "semgate_engine_foreign_requests", "Requests on the engine that this router did not send."),
        *(labels, replica.foreign_requests),
    )


def _can_serve(replica: Replica) -> bool:
    """By health checks, discovery and the operator. Breakers are left out: clients have a part in opening them."""
    return replica.healthy and replica.endpoint.ready is not False and not replica.draining
