"""Trace formats, one file each, in one registry; third parties add theirs by entry points ``semantic_kv.trace``."""

from __future__ import annotations

from typing import Final

from sembase.registry import Registry
from sembase.trace.formats.interface import TraceFormat

FORMATS: Final[Registry[TraceFormat]] = Registry("trace format", "semantic_kv.trace")
for _name, _module in (
    ("parquet", "parquet_file"),
    ("claude_code", "claude_code"),
    ("mooncake", "mooncake"),
    ("agent_text", "agent_text"),
    ("trace_v1", "record_lines"),
    ("json", "record_document"),
    ("csv", "record_rows"),
    ("azure", "azure"),
    ("openai", "openai_lines"),
    ("litellm", "litellm_lines"),
    ("langfuse", "langfuse_lines"),
    ("otel_genai", "otel_spans"),
    ("vllm_log", "vllm_log"),
    ("sglang_log", "sglang_log"),
    ("claude_log", "claude_log"),
):
    FORMATS.register(_name, f"sembase.trace.formats.{_module}:FORMAT")

__all__ = ["FORMATS", "TraceFormat"]
