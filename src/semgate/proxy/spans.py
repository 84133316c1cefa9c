"""Optional OpenTelemetry: one span per record, with times and counts but no text. Runs in the writer's thread."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sembase.errors import ConfigurationError, MissingDependencyError
from sembase.registry import load_target
from sembase.trace.record import TraceRecord
from semgate.http.headers import find_text
from semgate.proxy.exchange import Exchange

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

_EXPORTER: Final = "opentelemetry.exporter.otlp.proto.http.trace_exporter:OTLPSpanExporter"
_ATTRIBUTES: Final = {
    "status": "http.response.status_code",
    "path": "url.path",
    "outcome": "semgate.outcome",
    "prompt_tokens": "gen_ai.usage.input_tokens",
    "finish": "gen_ai.response.finish_reason",
}


def open_provider(endpoint: str) -> TracerProvider:
    """The library's own thread exports spans in batches; its queue is bounded and drops the excess."""
    try:
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415  (optional)
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415

        exporter = load_target(_EXPORTER)(endpoint=endpoint)
    except ModuleNotFoundError as error:
        raise MissingDependencyError(error.name or "opentelemetry", "tracing", "otlp_endpoint") from None
    except ImportError as error:
        raise ConfigurationError(
            f"otlp_endpoint: {error}. The extra 'picker' installs xds-protos, which overwrites files of "
            "opentelemetry-proto with older ones. Repair: pip install --force-reinstall --no-deps opentelemetry-proto"
        ) from None
    provider = TracerProvider(resource=Resource.create({"service.name": "semgate-proxy"}))
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return provider


class SpanMaker:
    """A client's ``traceparent`` is the parent; the same header goes upstream untouched."""

    def __init__(self, provider: TracerProvider) -> None:
        from opentelemetry.trace.propagation.tracecontext import (  # noqa: PLC0415  (optional)
            TraceContextTextMapPropagator,
        )

        self._provider = provider
        self._tracer = provider.get_tracer("semgate.proxy")
        self._propagator = TraceContextTextMapPropagator()

    def observe(self, exchange: Exchange, record: TraceRecord) -> None:
        parent = find_text(exchange.headers, b"traceparent")
        context = self._propagator.extract({"traceparent": parent}) if parent is not None else None
        start_ns = int(exchange.arrived_unix_ms * 1e6)
        attributes: dict[str, Any] = {
            known: record.metadata[name] for name, known in _ATTRIBUTES.items() if name in record.metadata
        }
        optional = {
            "gen_ai.usage.output_tokens": record.output_tokens,
            "semgate.cached_tokens": record.observed_prefix_hit_tokens,
            "semgate.ttft_ms": record.observed_ttft_ms,
            "semgate.blocks": len(record.blocks),
        }
        attributes |= {name: value for name, value in optional.items() if value is not None}
        span = self._tracer.start_span("proxy", context=context, start_time=start_ns, attributes=attributes)
        span.end(end_time=start_ns + int((exchange.ended_s - exchange.asked_s) * 1e9))

    def close(self) -> None:
        self._provider.shutdown()
