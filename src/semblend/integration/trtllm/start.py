"""Builds the leader from the engine's arguments, and logs once what is wrong with a deployment."""

from __future__ import annotations

import logging
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from semblend.contract import Decline, DeclineReason, Event
from semblend.integration.trtllm.leader import Leader
from semblend.integration.trtllm.link import link_of
from semblend.integration.trtllm.namespace import block_tokens, deployment_namespace, has_window, ranks
from semblend.integration.trtllm.options import TrtllmOptions
from semblend.pipeline.planner import Planner
from semblend.settings import Settings

log = logging.getLogger("semblend.trtllm")


def make_leader(llm_args: Any, options: TrtllmOptions, emit: Callable[[Event], None], engine_version: str) -> Leader:
    """Without the planner's semantic path: this engine provides tokens, but no text."""
    deployment = deployment_namespace(llm_args)
    unknown = [name for name in deployment.unknown_components() if name not in ("tenant", "lora")]
    if unknown:
        log.warning(
            "SemBlend declines every request: %s cannot be read from the engine's arguments", ", ".join(unknown)
        )
    planner = Planner(settings=_settings(), gates=options.gates, budget_bytes=options.index_bytes)
    obstacle = find_obstacle(llm_args, options, engine_version)
    if obstacle is not None:
        log.warning("SemBlend finds donors but loads no KV: %s", obstacle.detail)
    size = block_tokens(llm_args) or 1
    return Leader(options, planner, deployment, link_of(llm_args), emit, obstacle, block_tokens=size)


def find_obstacle(llm_args: Any, options: TrtllmOptions, engine_version: str) -> Decline | None:
    """Why this deployment never loads KV, whatever a look-up finds."""
    if options.materialization == "off":
        return None
    if engine_version != options.validated_version:
        detail = f"validated with {options.validated_version}, running {engine_version or 'an unknown version'}"
        return Decline(DeclineReason.VALIDATION_FAILURE, detail)
    if ranks(llm_args) != 1:
        return Decline(
            DeclineReason.UNSUPPORTED_MODE,
            "with more than one rank, the leader cannot learn whether every rank has saved or loaded a page",
        )
    if has_window(llm_args):
        return Decline(
            DeclineReason.UNSUPPORTED_MODE,
            "max_attention_window is set: blocks outside a sliding window have no page to save or load",
        )
    return None


def installed_version() -> str:
    try:
        return version("tensorrt_llm")
    except PackageNotFoundError:
        return ""


def _settings() -> Settings:
    settings = Settings.from_environment()
    return Settings(
        enabled=settings.enabled,
        embedder="none",
        discovery_only=settings.discovery_only,
        strict_prefix_boundary=settings.strict_prefix_boundary,
        exact_materialization_only=True,
    )
