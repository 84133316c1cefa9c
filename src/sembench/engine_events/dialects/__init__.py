"""Log parsers, one per engine. A new engine is a file here, or an entry point of a third party."""

from __future__ import annotations

from typing import Final

from sembase.registry import Registry
from sembench.engine_events.dialects.base import Dialect, LineResult

DIALECTS: Final[Registry[type[Dialect]]] = Registry("engine dialect", group="sembench.engine_dialects")
DIALECTS.register("vllm", "sembench.engine_events.dialects.vllm:VllmDialect")
DIALECTS.register("sglang", "sembench.engine_events.dialects.sglang:SglangDialect")
DIALECTS.register("trtllm", "sembench.engine_events.dialects.trtllm:TrtllmDialect")
DIALECTS.register("lmcache", "sembench.engine_events.dialects.lmcache:LmcacheDialect")
DIALECTS.register("semblend", "sembench.engine_events.dialects.semblend:SemblendDialect")

__all__ = ["DIALECTS", "Dialect", "LineResult"]
