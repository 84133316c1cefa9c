"""Metrics and spans: right numbers, no text."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client.parser import text_string_to_metric_families

from sembase.errors import ConfigurationError, MissingDependencyError
from semgate.http.reply_scan import ReplyScan
from semgate.prompt.digest import Digests
from semgate.proxy.exchange import Exchange
from semgate.proxy.record import RecordMaker
from semgate.proxy.spans import SpanMaker, open_provider
from semgate.proxy.telemetry import SECONDS, Histogram, ProxyTelemetry
from semgate.proxy.writer import start_trace_writer, trace_files


def ended(seconds: float) -> Exchange:
    scan = ReplyScan(is_event_stream=True)
    scan.feed(b'data: {"choices": [{"delta": {"content": "a"}}]}\n\n', 100.0 + seconds / 2)
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "CANARY"}]}).encode()
    return Exchange(
        "/v1/chat/completions",
        ((b"traceparent", b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),),
        body,
        "t",
        1_000_000.0,
        100.0,
        outcome="ok",
        status=200,
        first_byte_s=100.0 + seconds / 4,
        ended_s=100.0 + seconds,
        scan=scan,
    )


def values(telemetry: ProxyTelemetry) -> dict[str, float]:
    families = text_string_to_metric_families(telemetry.text().decode())
    return {
        sample.name + "".join(f"|{value}" for _, value in sorted(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }


def test_what_happened_is_counted(tmp_path: Path) -> None:
    writer = start_trace_writer(
        lambda _: None, trace_files(tmp_path, rotate_bytes=1, rotate_seconds=1.0), queue_records=0
    )
    telemetry = ProxyTelemetry(writer)
    for seconds in (0.02, 0.2, 1000.0):
        telemetry.observe(ended(seconds))
    failed = ended(1.0)
    failed.outcome, failed.status = "upstream_fault", None
    telemetry.observe(failed)
    writer.put(failed)
    writer.close()
    found = values(telemetry)
    assert found["semgate_proxy_requests_total|ok|/v1/chat/completions|200"] == 3
    assert found["semgate_proxy_requests_total|upstream_fault|/v1/chat/completions|none"] == 1
    assert found["semgate_proxy_duration_seconds_count"] == 3
    assert found["semgate_proxy_duration_seconds_bucket|0.025"] == 1
    assert found["semgate_proxy_duration_seconds_bucket|300.0"] == 2
    assert found["semgate_proxy_ttft_seconds_sum"] == pytest.approx(500.11)
    assert found["semgate_proxy_trace_dropped_total|queue_full"] == 1
    assert b"CANARY" not in telemetry.text()


def test_an_edge_belongs_to_the_bucket_it_closes() -> None:
    held = Histogram()
    for edge in SECONDS:
        held.observe(edge)
    assert [count for _, count in held.buckets()] == [*range(1, len(SECONDS) + 1), len(SECONDS)]


def test_a_span_has_times_and_counts_and_no_text() -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    spans = SpanMaker(provider)
    exchange = ended(0.5)
    record = RecordMaker(Digests(b"k" * 32), redact_text=True).record_of(exchange)
    assert record is not None
    spans.observe(exchange, record)
    (span,) = exporter.get_finished_spans()
    spans.close()
    assert span.parent is not None
    assert f"{span.parent.span_id:016x}" == "b7ad6b7169203331"
    assert span.start_time is not None
    assert span.end_time is not None
    assert (span.end_time - span.start_time) / 1e9 == pytest.approx(0.5)
    assert span.attributes is not None
    assert span.attributes["http.response.status_code"] == 200
    assert span.attributes["semgate.ttft_ms"] == 250.0
    assert "CANARY" not in span.to_json()


def test_a_missing_exporter_names_what_to_install() -> None:
    pytest.importorskip("opentelemetry.sdk")
    try:
        import opentelemetry.exporter.otlp.proto.http  # type: ignore[import-not-found,unused-ignore]  # noqa: F401
    except ModuleNotFoundError:
        with pytest.raises(MissingDependencyError, match="tracing"):
            open_provider("http://127.0.0.1:1/v1/traces")
    else:
        open_provider("http://127.0.0.1:1/v1/traces").shutdown()


def test_files_of_another_package_over_the_exporters_name_the_repair(monkeypatch: pytest.MonkeyPatch) -> None:
    def overwritten(target: str) -> None:
        raise ImportError(f"cannot import name 'InstrumentationScope' for {target}")

    monkeypatch.setattr("semgate.proxy.spans.load_target", overwritten)
    with pytest.raises(
        ConfigurationError, match=r"InstrumentationScope.*--force-reinstall --no-deps opentelemetry-proto"
    ):
        open_provider("http://127.0.0.1:1/v1/traces")
