"""Settings in, the FastAPI application out. All state belongs to the application; two applications share nothing."""

from __future__ import annotations

from typing import Annotated, Any, Final

import numpy as np
from fastapi import Depends, FastAPI, Request

from semantic_kv.api.borders import BodyLimit, LocalHost, install_fault_handlers, require_json
from semantic_kv.api.live_cache import LiveCache
from semantic_kv.api.schemas import BlockOut, ErrorOut, HealthOut, SimulateRequestIn, SimulateRequestOut
from semantic_kv.api.settings import ServiceSettings
from sembase.errors import ContractError
from sembase.segment import Message
from sembase.trace.from_prompt import record_from_messages
from semblend import __version__

_DESCRIPTION: Final = (
    "Simulates prefix and KV caches. Every TTFT is modelled, none is measured, and no real cache is controlled."
)
_REFUSALS: Final[dict[int | str, dict[str, Any]]] = {
    400: {"model": ErrorOut, "description": "invalid JSON"},
    413: {"model": ErrorOut, "description": "the body is too large"},
    415: {"model": ErrorOut, "description": "the content type is not application/json"},
    422: {"model": ErrorOut, "description": "valid JSON that does not match the schema or the limits"},
}


class Service:
    """What the routes share: the settings and one simulated cache."""

    def __init__(self, settings: ServiceSettings) -> None:
        self.settings = settings
        self.cache = LiveCache(settings)


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
    simulated = app.post(
        "/v1/simulate/request",
        summary="Look up one prompt in the service's cache",
        dependencies=[Depends(require_json)],
        responses=_REFUSALS,
    )
    simulated(simulate_request)
    return app


def health() -> HealthOut:
    return HealthOut(status="ok", version=__version__)


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
    uncached = record.prompt_tokens - found.hit_tokens
    ttft = service.settings.latency.ttft_ms(np.array([uncached]), np.array([found.hit_tokens]))
    return SimulateRequestOut(
        request_id=asked.request_id,
        blocks=[BlockOut(semantic_type=b.semantic_type, token_count=b.token_count) for b in record.blocks],
        hit_blocks=found.hit_blocks,
        prompt_tokens=record.prompt_tokens,
        hit_tokens=found.hit_tokens,
        uncached_tokens=uncached,
        modelled_ttft_ms=float(ttft[0]),
    )
