"""Puts the adapter together when the engine builds its cache: verdict, self-test, planner, hook; or the stock cache."""

from __future__ import annotations

import logging
import sys
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from sglang.srt.mem_cache.registry import TreeCacheBuildContext, create_unified_radix_cache

from semblend.contract import Event
from semblend.integration.border import Border
from semblend.integration.event_sink import EventSink
from semblend.integration.second_sight import SecondSight
from semblend.integration.settings import handed_on
from semblend.integration.sglang import forward_hook
from semblend.integration.sglang.desk import Desk, provenance
from semblend.integration.sglang.donors import Donors
from semblend.integration.sglang.holes import HoleBoard, HoleOrder
from semblend.integration.sglang.namespace import deployment_namespace
from semblend.integration.sglang.options import WHERE, parse_options
from semblend.integration.sglang.planner_provider import PlannerProvider
from semblend.integration.sglang.radix_backend import SemBlendRadixCache
from semblend.integration.sglang.self_test import check_rotation
from semblend.integration.sglang.slots import SlotCopier
from semblend.integration.sglang.support import Deployment, Support, examine
from semblend.kv.rope import half_split
from semblend.pipeline.planner import Planner

if TYPE_CHECKING:
    from semblend.contract import Namespace
    from semblend.integration.sglang.options import SglangOptions

logger = logging.getLogger("sglang.semblend")


@dataclass(frozen=True, slots=True)
class Parts:
    """What a cache needs to serve more than the stock one."""

    options: SglangOptions
    deployment: Namespace
    desk: Desk
    board: HoleBoard
    copier: SlotCopier
    border: Border
    sink: EventSink

    def close(self) -> None:
        self.desk.provider.on_shutdown()
        self.sink.close()


def build_cache(context: TreeCacheBuildContext) -> Any:
    """The factory behind ``--radix-cache-backend semblend``. Anything that stands against it gives the stock cache."""
    options = parse_options(handed_on(WHERE))
    support = examine(_deployment(context), getattr(sys.modules.get("sglang"), "__version__", None))
    planner = Planner(gates=options.gates, budget_bytes=options.index_bytes) if support.usable else None
    if planner is None or not planner.settings.enabled:
        reason = support.reason or "switched off in the settings"
        logger.warning("SemBlend serves nothing, every request is computed by the engine alone: %s", reason)
        return create_unified_radix_cache(context)
    cache = create_unified_radix_cache(context, cache_class=SemBlendRadixCache)
    sink = EventSink(options.events, logger, "sglang")
    border = Border(sink.write, logger)
    parts = border.call("start", "", partial(_parts, context, support, options, planner, border, sink), None)
    if parts is None:
        logger.warning("SemBlend serves nothing: it could not be started, see the fault above")
        return cache
    cache.begin(parts)
    _announce(support)
    return cache


def _parts(
    context: TreeCacheBuildContext,
    support: Support,
    options: SglangOptions,
    planner: Planner,
    border: Border,
    sink: EventSink,
) -> Parts:
    runner = context.tp_worker.model_runner
    allocator = context.params.token_to_kv_pool_allocator
    pool, page = allocator.get_kvcache(), context.params.page_size
    rotation = half_split(support.rope_theta, support.rotary_dim)
    with torch.inference_mode():
        check_rotation(runner.model, rotation, pool.dtype)
    Planner.warm_up()
    emit = partial(_emit, sink)
    donors = Donors(planner, emit, options.min_donor_tokens, page)
    second_sight = SecondSight(options.gates.min_run_tokens) if options.second_sight else None
    provider = PlannerProvider(planner, donors, None, second_sight)
    desk = Desk(provider, options, emit, page_tokens=page, max_step_tokens=_step_tokens(context, allocator.size))
    board = HoleBoard(border, partial(_filled, desk, options.recompute_all), max_rows=runner.max_running_requests)
    forward_hook.install()
    if not forward_hook.is_installed():
        raise RuntimeError(f"the engine did not take the hook on {forward_hook.TARGET}")
    forward_hook.HOOK.serve(runner, board, partial(_told, desk))
    provider.on_init()
    deployment = deployment_namespace(
        context.server_args,
        context.model_config,
        kv_layout=f"{pool.kv_cache_layout}:{pool.layer_num}x{pool.head_num}x{pool.head_dim}",
        kv_dtype=str(pool.dtype).removeprefix("torch."),
        page=page,
    )
    return Parts(options, deployment, desk, board, SlotCopier(pool, rotation), border, sink)


def _emit(sink: EventSink, event: Event) -> None:
    sink.write(event)


def _filled(desk: Desk, recompute_all: bool, order: HoleOrder, compute_ms: float, failed: bool) -> None:
    if (record := desk.known(order.rid)) is not None:
        desk.confirmed(record, order.load_ms, compute_ms, recomputed=recompute_all or failed)


def _told(desk: Desk, rid: str) -> dict[str, Any] | None:
    record = desk.known(rid)
    return None if record is None else provenance(record)


def _step_tokens(context: TreeCacheBuildContext, pool_tokens: int) -> int:
    """Most holes of one request: as many tokens as the engine computes in one step."""
    size = getattr(context.params, "chunked_prefill_size", None) or getattr(
        context.server_args, "chunked_prefill_size", None
    )
    return size if isinstance(size, int) and size > 0 else pool_tokens


def _deployment(context: TreeCacheBuildContext) -> Deployment:
    allocator = context.params.token_to_kv_pool_allocator
    return Deployment(
        server_args=context.server_args,
        model_config=context.model_config,
        pool=allocator.get_kvcache(),
        is_hybrid=context.is_hybrid_swa or context.is_hybrid_ssm,
        has_host_tier=context.enable_hierarchical_cache,
        is_disabled=context.disable_radix_cache,
        shard_size=int(getattr(allocator, "shard_size", 1) or 1),
    )


def _announce(support: Support) -> None:
    logger.info("SemBlend is ready: self-test passed, forward hook in place")
    if support.version_note:
        logger.warning("SemBlend: %s", support.version_note)
