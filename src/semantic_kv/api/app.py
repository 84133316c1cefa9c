"""Settings in, the FastAPI application out. All state belongs to the application; two applications share nothing."""

from __future__ import annotations

from typing import Annotated, Any, Final

import numpy as np
from fastapi import APIRouter, Depends, FastAPI, Request

from semantic_kv.api.borders import BodyLimit, LocalHost, install_fault_handlers, require_json
from semantic_kv.api.jobs import EXPERIMENTS, Jobs
from semantic_kv.api.live_cache import LiveCache
from semantic_kv.api.schemas import (
    BlockOut,
    CacheStateOut,
    EpochOut,
    ErrorOut,
    ExperimentIn,
    FiguresOut,
    HealthOut,
    LabelCounts,
    MetricsOut,
    PoliciesOut,
    ResetIn,
    SimulateRequestIn,
    SimulateRequestOut,
    SimulateTraceIn,
)
from semantic_kv.api.settings import ServiceSettings
from semantic_kv.policy.registry import ADMISSION, EVICTION
from sembase.errors import ContractError
from sembase.labels import LABELS
from sembase.segment import Message
from sembase.trace.from_prompt import record_from_messages
from semblend import __version__

_DESCRIPTION: Final = (
    "Simulates prefix and KV caches. Every TTFT is modelled, none is measured, and no real cache is controlled."
)
_CHANGES: Final[dict[int | str, dict[str, Any]]] = {
    415: {"model": ErrorOut, "description": "the content type is not application/json"}
}
_REFUSALS: Final[dict[int | str, dict[str, Any]]] = {
    400: {"model": ErrorOut, "description": "invalid JSON"},
    413: {"model": ErrorOut, "description": "the body is too large"},
    422: {"model": ErrorOut, "description": "valid JSON that does not match the schema or the limits"},
}
_BUSY: Final[dict[int | str, dict[str, Any]]] = {503: {"model": ErrorOut, "description": "busy; retry later"}}
_UNKNOWN: Final[dict[int | str, dict[str, Any]]] = {404: {"model": ErrorOut, "description": "no such experiment"}}


class Service:
    """What the routes share: one simulated cache and the job slots."""

    def __init__(self, settings: ServiceSettings) -> None:
        self.settings = settings
        self.cache = LiveCache(settings)
        self.jobs = Jobs(settings.limits, settings.latency)


def _service(request: Request) -> Service:
    service = request.app.state.service
    assert isinstance(service, Service)
    return service


Chosen = Annotated[Service, Depends(_service)]


def create_app(settings: ServiceSettings | None = None, *, is_local: bool = False) -> FastAPI:
    """``is_local``: it listens on a loopback address."""
    chosen = settings or ServiceSettings()
    app = FastAPI(title="semantic_kv", version=__version__, description=_DESCRIPTION)
    app.state.service = Service(chosen)
    app.add_middleware(BodyLimit, max_bytes=chosen.limits.body_bytes)
    if is_local:
        app.add_middleware(LocalHost)
    install_fault_handlers(app)
    app.get("/health", summary="Health check")(health)
    app.get("/v1/policies", summary="Names of policies and experiments")(policies)
    app.get("/v1/cache/state", summary="The simulated cache of this service")(cache_state)
    app.get("/v1/metrics/summary", summary="Hits, admissions and evictions in the current epoch")(metrics_summary)
    changes = APIRouter(dependencies=[Depends(require_json)], responses=_CHANGES)
    changes.post("/v1/cache/reset", summary="Restart with an empty cache", responses=_REFUSALS)(reset_cache)
    changes.post("/v1/simulate/request", summary="Look up one prompt in the service's cache", responses=_REFUSALS)(
        simulate_request
    )
    changes.post(
        "/v1/simulate/trace",
        summary="Simulate a small trace, with one new cache per policy",
        responses={**_REFUSALS, **_BUSY},
    )(simulate_trace)
    changes.post(
        "/v1/experiments/run",
        summary="Run a built-in workload under a few policies",
        responses={**_REFUSALS, **_BUSY, **_UNKNOWN},
    )(run_experiment)
    app.include_router(changes)
    return app


def health() -> HealthOut:
    return HealthOut(status="ok", version=__version__)


def policies() -> PoliciesOut:
    return PoliciesOut(
        eviction=list(EVICTION.names()), admission=list(ADMISSION.names()), experiments=list(EXPERIMENTS)
    )


def simulate_request(asked: SimulateRequestIn, service: Chosen) -> SimulateRequestOut:
    if len(asked.messages) > service.settings.limits.messages:
        raise ContractError(f"a request has at most {service.settings.limits.messages} messages")
    record = record_from_messages(
        [Message(message.role, message.content, message.semantic_type) for message in asked.messages],
        request_id=asked.request_id,
        timestamp_ms=0.0,
        session_id=asked.session_id,
        tenant_id=asked.tenant_id,
    )
    found = service.cache.look_up(record)
    uncached = found.prompt_tokens - found.hit_tokens
    ttft = service.settings.latency.ttft_ms(np.array([uncached]), np.array([found.hit_tokens]))
    return SimulateRequestOut(
        request_id=asked.request_id,
        epoch=found.epoch,
        blocks=[BlockOut(semantic_type=b.semantic_type, token_count=b.token_count) for b in record.blocks],
        hit_blocks=found.hit_blocks,
        prompt_tokens=found.prompt_tokens,
        hit_tokens=found.hit_tokens,
        uncached_tokens=uncached,
        modelled_ttft_ms=float(ttft[0]),
    )


def simulate_trace(asked: SimulateTraceIn, service: Chosen) -> FiguresOut:
    return service.jobs.simulate_trace(asked)


def run_experiment(asked: ExperimentIn, service: Chosen) -> FiguresOut:
    return service.jobs.run_experiment(asked)


def cache_state(service: Chosen) -> CacheStateOut:
    settings, state = service.settings, service.cache.state()
    return CacheStateOut(
        epoch=state.epoch,
        evict=settings.evict,
        admit=settings.admit,
        model=settings.model,
        unit=settings.unit,
        capacity=settings.capacity,
        used=state.used,
        resident_blocks=state.resident_blocks,
        known_blocks=state.known_blocks,
        requests=state.requests,
        latency=settings.latency.as_record(),
    )


def reset_cache(_: ResetIn, service: Chosen) -> EpochOut:
    return EpochOut(epoch=service.cache.reset())


def metrics_summary(service: Chosen) -> MetricsOut:
    epoch, result = service.cache.totals()
    if result is None:
        nothing = dict.fromkeys(
            ("requests", "references", "hit_blocks", "prompt_tokens", "hit_tokens", "admitted", "refused", "evicted"), 0
        )
        return MetricsOut(epoch=epoch, hit_ratio=None, by_label={}, **nothing)
    columns = zip(LABELS, result.references_by_label, result.hits_by_label, result.evictions_by_label, strict=True)
    return MetricsOut(
        epoch=epoch,
        requests=int(result.per_request_hit_blocks.size),
        references=result.references,
        hit_blocks=result.hit_blocks,
        hit_ratio=result.hit_ratio,
        prompt_tokens=result.prompt_tokens,
        hit_tokens=result.hit_tokens,
        admitted=result.admitted,
        refused=result.refused,
        evicted=result.evicted,
        by_label={
            label: LabelCounts(references=int(asked), hits=int(hits), evictions=int(evicted))
            for label, asked, hits, evicted in columns
            if asked or evicted
        },
    )
