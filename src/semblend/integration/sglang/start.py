"""Builds the adapter when the engine builds its cache: support check, self-test, planner, hooks; or the stock cache."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from sglang.srt.mem_cache.registry import TreeCacheBuildContext, create_unified_radix_cache
from sglang.srt.mem_cache.unified_radix_cache import UnifiedRadixCache
from sglang.srt.utils.hf_transformers_utils import get_tokenizer

import sglang
from semblend.contract import Event
from semblend.integration.answer_budgets import open_budgets, with_budgets
from semblend.integration.border import Border
from semblend.integration.core.refresh_on_repeat import RefreshOnRepeat
from semblend.integration.core.start_up import log_disabled, log_proof, make_announcer, make_decoder, warm_up
from semblend.integration.event_sink import EventSink
from semblend.integration.gpu_evidence import Kind, architecture_of, log_acceptance
from semblend.integration.settings import handed_on
from semblend.integration.sglang import hooks
from semblend.integration.sglang.donor_kv import DonorCopier
from semblend.integration.sglang.donors import Donors
from semblend.integration.sglang.gaps import FillCommand, GapFiller, Limits
from semblend.integration.sglang.kv_pool import attention_layers, keys_of, latent_dim_of, observable
from semblend.integration.sglang.metrics import EngineMetrics
from semblend.integration.sglang.namespace import deployment_namespace
from semblend.integration.sglang.options import WHERE, parse_options
from semblend.integration.sglang.parts import Parts
from semblend.integration.sglang.planner_provider import PlannerProvider
from semblend.integration.sglang.prefill import Prefill
from semblend.integration.sglang.provider import SemanticPrefixProvider, load_provider
from semblend.integration.sglang.radix_backend import SemBlendRadixCache
from semblend.integration.sglang.repair import RepairJob, Repairs
from semblend.integration.sglang.request_tracker import RequestTracker, meta_info
from semblend.integration.sglang.self_test import probe_costs, prove_on_model
from semblend.integration.sglang.start_sharing import fleet_access, fleet_donors
from semblend.integration.sglang.support import Deployment, Support, contract_gap, examine
from semblend.pipeline.planner import Planner
from semblend.plan.reuse_cost import ReuseCost

if TYPE_CHECKING:
    from collections.abc import Callable

    from semblend.integration.announce import Announcer
    from semblend.integration.core.fleet_access import DirectoryAccess
    from semblend.integration.core.rotation_proof import Proof
    from semblend.integration.core.selective_fill import Filled
    from semblend.integration.sglang.options import SglangOptions
    from semblend.integration.shared_options import RepairPolicy
    from semblend.kv.rope import LayerRotations
    from semblend.plan.fidelity import FidelityGate

logger = logging.getLogger("sglang.semblend")


def build_cache(context: TreeCacheBuildContext) -> Any:
    """The factory of ``--radix-cache-backend semblend``; returns the stock cache where ours cannot be used."""
    options = parse_options(handed_on(WHERE))
    gap = contract_gap(UnifiedRadixCache)
    deployment = _deployment(context, options)
    support = Support(gap) if gap else examine(deployment, sglang.__version__, options.validated_version)
    budgets = open_budgets(options, options.gates, "sglang", context.server_args.model_path, logger)
    options = replace(options, gates=with_budgets(options.gates, budgets, options.max_answer_loss))
    planner = Planner(gates=options.gates, budget_bytes=options.index_bytes) if support.usable else None
    if planner is None or not planner.settings.enabled:
        reason = support.reason or "it is switched off in the settings"
        log_disabled(logger, reason)
        return create_unified_radix_cache(context)
    proof = prove(context)
    if isinstance(proof, str):
        log_disabled(logger, proof)
        return create_unified_radix_cache(context)
    sink = EventSink(options.events, logger, "sglang")
    metrics = EngineMetrics(context.server_args)
    emit = partial(_emit, sink, metrics)
    border = Border(emit, logger)
    # Configuration errors stop the start-up.
    own = load_provider(options.provider) if options.provider else None
    fidelity = options.fidelity_gate(logger.warning, budgets)
    announcer = make_announcer(planner, border, getattr(context.server_args, "dp_rank", None) or 0)
    access = fleet_access(options)
    cache = create_unified_radix_cache(context, cache_class=SemBlendRadixCache)
    make = partial(
        _parts,
        context,
        support,
        proof.rotations,
        options,
        planner,
        border,
        sink,
        emit,
        announcer,
        own,
        fidelity,
        metrics,
        access,
        cache.cache_controller,
    )
    parts = border.call("start", "", make, None)
    if parts is None:
        announcer.close()
        log_disabled(logger, "it could not be started, see the fault above")
        return cache
    cache.begin(parts)
    logger.info("SemBlend is ready: self-test passed, forward hook in place")
    if support.experimental:
        border.call("start", "", partial(_log_acceptance, context, deployment, options, support.experimental), None)
    return cache


def _log_acceptance(
    context: TreeCacheBuildContext, deployment: Deployment, options: SglangOptions, experimental: str
) -> None:
    kind = Kind(
        device=torch.get_device_module(deployment.device).get_device_name(),
        backend=deployment.backend,
        architecture=architecture_of(context.model_config.hf_config),
        engine="sglang",
        engine_version=sglang.__version__,
    )
    log_acceptance(logger, kind, options, experimental)


def _parts(
    context: TreeCacheBuildContext,
    support: Support,
    rotations: LayerRotations,
    options: SglangOptions,
    planner: Planner,
    border: Border,
    sink: EventSink,
    emit: Callable[[Event], None],
    announcer: Announcer,
    own: SemanticPrefixProvider | None,
    fidelity: FidelityGate,
    metrics: EngineMetrics,
    access: DirectoryAccess | None,
    controller: Any,
) -> Parts:
    runner = context.tp_worker.model_runner
    allocator = context.params.token_to_kv_pool_allocator
    pool, page = allocator.get_kvcache(), context.params.page_size
    layers = observable(attention_layers(runner.model, pool), pool)
    warm_up(logger)
    donors = Donors(planner, emit, options.min_donor_tokens, page, announcer)
    metrics.count_donors = donors.__len__
    refresh = RefreshOnRepeat(options.gates.min_run_tokens) if options.refresh_on_repeat else None
    planned = PlannerProvider(
        planner, donors, make_decoder(planner, border, partial(load_tokenizer, context.server_args)), refresh
    )
    provider = own or planned
    step_tokens = _step_tokens(context, allocator.size)
    cost = ReuseCost(border.call("start", "", partial(probe_costs, runner, pool, page), ()))
    tracker = RequestTracker(
        provider,
        options,
        emit,
        page_tokens=page,
        max_step_tokens=step_tokens,
        fidelity=fidelity,
        model=context.server_args.served_model_name,
        can_recompute=True,
        cost=cost,
    )
    rows = 1 if support.one_range_per_pass else runner.max_running_requests
    filled = partial(_filled, tracker, options.recompute_all)
    filler = GapFiller(border, filled, layers, Limits(step_tokens, rows))
    if not hooks.install(hooks.FORWARD):
        raise RuntimeError(f"the engine did not accept the hook on {hooks.FORWARD}")
    took = cost.took if cost.is_known else None
    hooks.HOOK.serve(runner, filler, partial(_provenance_of, tracker), border, took)
    sees_arrivals = (access is not None or planned.wants_texts) and hooks.install(hooks.ARRIVAL)
    if provider is planned and planned.wants_texts and not sees_arrivals:
        logger.warning(
            "The engine did not accept the hook on %s: texts are embedded at the look-up instead of on arrival",
            hooks.ARRIVAL,
        )
    provider.on_init()
    deployment = deployment_namespace(
        context.server_args,
        context.model_config,
        kv_layout=_layout_name(pool),
        kv_dtype=str(pool.dtype).removeprefix("torch."),
        page=page,
    )
    fleet = None
    if access is not None:
        if provider is planned and sees_arrivals and hooks.install(hooks.IDLE):
            share = partial(fleet_donors, access, options, deployment, controller, planner, donors, metrics, border)
            fleet = border.call("fleet", "", share, None)
        else:
            logger.warning("SemBlend shares no donors: it needs its own provider and hooks on arrivals and idle rounds")
    after_forward = _after_forward(runner)
    return Parts(
        options=options,
        deployment=deployment,
        tracker=tracker,
        filler=filler,
        copier=DonorCopier(pool, rotations, page, after_forward),
        prefill=Prefill(runner, after_forward),
        repairs=Repairs(
            _repair_policy(context, options), page, border, metrics.record_repair, partial(_repaired, tracker, page)
        ),
        border=border,
        sink=sink,
        announcer=announcer,
        fleet=fleet,
    )


def _repair_policy(context: TreeCacheBuildContext, options: SglangOptions) -> RepairPolicy:
    """What was asked for, if the engine lets us compute between its steps."""
    if options.repair == "off":
        return "off"
    if context.enable_hierarchical_cache:
        logger.warning("Repair is off: it was not verified with the host tier (--enable-hierarchical-cache)")
        return "off"
    needed = (hooks.IDLE, hooks.STEP) if options.repair == "likely" else (hooks.IDLE,)
    for target in needed:
        if not hooks.install(target):
            logger.warning("Repair is off: the engine did not accept the hook on %s", target)
            return "off"
    return options.repair


def _repaired(tracker: RequestTracker, page: int, job: RepairJob) -> None:
    """The whole pages of the prompt may become a donor; the answer is not part of one."""
    if job.is_donor:
        tracker.repaired(job.rid, job.tokens[: job.prompt_tokens // page * page], job.namespace)


def _layout_name(pool: Any) -> str:
    _, heads, dim = keys_of(pool)[0].shape
    return f"{'mla' if latent_dim_of(pool) else pool.kv_cache_layout}:{pool.layer_num}x{heads}x{dim}"


def prove(context: TreeCacheBuildContext) -> Proof | str:
    """How each layer's keys move, measured on the loaded model; or why nothing can be moved."""
    faults: list[str] = []
    border = Border(lambda fault: faults.append(fault.error), logger)
    started = time.perf_counter()
    runner, page = context.tp_worker.model_runner, context.params.page_size
    pool = context.params.token_to_kv_pool_allocator.get_kvcache()
    layers = attention_layers(runner.model, pool)
    proof = border.call("self_test", "", partial(prove_on_model, runner, pool, page, layers), None)
    if proof is None:
        return faults[0]
    log_proof(logger, proof, time.perf_counter() - started)
    return proof


def _after_forward(runner: Any) -> Callable[[], None]:
    """Makes later work of the scheduler's stream wait for the pass in flight, which may still write a donor's KV or
    the slots of a request that has just ended. The engine's next pass waits for the scheduler's stream by itself."""
    if runner.device == "cpu":
        return lambda: None
    streams = torch.get_device_module(runner.device)
    return lambda: streams.current_stream().wait_stream(runner.forward_stream)


def load_tokenizer(server_args: Any) -> Callable[[list[int]], str]:
    tokenizer = get_tokenizer(
        server_args.tokenizer_path or server_args.model_path,
        tokenizer_mode=server_args.tokenizer_mode,
        trust_remote_code=server_args.trust_remote_code,
        tokenizer_revision=server_args.revision,
    )
    return partial(tokenizer.decode, skip_special_tokens=True)


def _emit(sink: EventSink, metrics: EngineMetrics, event: Event) -> None:
    sink.write(event)
    metrics.record(event)


def _filled(
    tracker: RequestTracker, recompute_all: bool, command: FillCommand, compute_ms: float, filled: Filled | None
) -> None:
    if (record := tracker.known(command.rid)) is not None:
        if filled is None:
            tracker.computed_whole(record, "the loaded KV could not be kept; the fault event says why")
        elif recompute_all:
            tracker.computed_whole(record)
        else:
            tracker.confirmed(
                record,
                command.load_ms,
                compute_ms,
                recomputed_tokens=filled.recomputed_tokens,
                selected_by=filled.policy,
            )


def _provenance_of(tracker: RequestTracker, rid: str) -> dict[str, Any] | None:
    record = tracker.known(rid)
    return None if record is None else meta_info(record)


def _step_tokens(context: TreeCacheBuildContext, pool_tokens: int) -> int:
    """Maximum gap tokens of one request: as many as the engine computes in one step."""
    size = getattr(context.params, "chunked_prefill_size", None) or getattr(
        context.server_args, "chunked_prefill_size", None
    )
    return size if isinstance(size, int) and size > 0 else pool_tokens


def _deployment(context: TreeCacheBuildContext, options: SglangOptions) -> Deployment:
    allocator = context.params.token_to_kv_pool_allocator
    return Deployment(
        server_args=context.server_args,
        model_config=context.model_config,
        pool=allocator.get_kvcache(),
        has_window_pool=context.is_hybrid_swa,
        has_recurrent_state=context.is_hybrid_ssm,
        has_host_tier=context.enable_hierarchical_cache,
        is_disabled=context.disable_radix_cache,
        shard_size=int(getattr(allocator, "shard_size", 1) or 1),
        experimental_gpu=options.experimental_gpu,
        shares_donors=options.fleet.places is not None,
    )
