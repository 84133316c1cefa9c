"""Builds the halves at start-up: the planner in the scheduler's process, store and self-test in the workers'."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from vllm.distributed.parallel_state import get_tp_group
from vllm.tokenizers.registry import cached_tokenizer_from_config

from semblend.integration.border import Border
from semblend.integration.core.start_up import log_disabled
from semblend.integration.vllm.attention_cache import AttentionCache
from semblend.integration.vllm.commands import Readiness
from semblend.integration.vllm.look_up import Capabilities
from semblend.integration.vllm.namespace import deployment_namespace
from semblend.integration.vllm.scheduler_half import SchedulerHalf
from semblend.integration.vllm.self_test import POSITIONS, check_rotation
from semblend.integration.vllm.sparse_forward import SparseForward
from semblend.integration.vllm.worker_half import WorkerHalf
from semblend.kv.donor_store import KVShape, open_donor_store
from semblend.kv.rope import Rotation, half_split
from semblend.pipeline.planner import Planner
from semblend.plan.fidelity import OPEN, FidelityGate

if TYPE_CHECKING:
    import logging
    from collections.abc import Callable

    from vllm.config import VllmConfig
    from vllm.v1.kv_cache_interface import KVCacheConfig

    from semblend.contract import Event
    from semblend.integration.announce import Announcer
    from semblend.integration.texts import TextDecoder
    from semblend.integration.vllm.options import ConnectorOptions
    from semblend.integration.vllm.support import Support


def make_planner(options: ConnectorOptions) -> Planner:
    """A warm planner: no request pays for the compilation of its loops."""
    Planner.warm_up()
    return Planner(gates=options.gates, budget_bytes=options.index_bytes)


def load_tokenizer(vllm_config: VllmConfig) -> Callable[[list[int]], str]:
    tokenizer = cached_tokenizer_from_config(vllm_config.model_config)
    return partial(tokenizer.decode, skip_special_tokens=True)


def start_scheduler_half(
    vllm_config: VllmConfig,
    kv_cache_config: KVCacheConfig,
    support: Support,
    options: ConnectorOptions,
    planner: Planner,
    decoder: TextDecoder | None,
    readiness: Readiness,
    emit: Callable[[Event], None],
    announcer: Announcer,
    fidelity: FidelityGate = OPEN,
) -> SchedulerHalf:
    capabilities = Capabilities(
        fault=support.reason if not support.usable else readiness.fault,
        sparse_forward=readiness.sparse_forward,
        ranks=vllm_config.parallel_config.world_size,
        block_tokens=vllm_config.cache_config.block_size,
        hash_tokens=kv_cache_config.hash_block_size or vllm_config.cache_config.block_size,
        max_step_tokens=vllm_config.scheduler_config.max_num_batched_tokens,
        bytes_per_token=readiness.bytes_per_token,
        model=vllm_config.model_config.served_model_name,
    )
    deployment = deployment_namespace(vllm_config, readiness.layout_digest or None)
    return SchedulerHalf(options, planner, decoder, deployment, capabilities, emit, announcer, fidelity)


def announce(
    support: Support, readiness: Readiness, options: ConnectorOptions, ranks: int, log: logging.Logger
) -> None:
    """Log once what this engine can do, and why not more."""
    if not support.usable or readiness.fault:
        reason = support.reason or readiness.fault
        log_disabled(log, reason)
    elif not readiness.sparse_forward:
        log.warning("SemBlend is restricted to prefix-shaped loads: %s", support.sparse_reason)
    else:
        log.info("SemBlend is ready: self-test passed, layout %s", readiness.layout_digest)
        if ranks > 1 and (options.recompute_fraction or options.max_predicted_kl is not None):
            log.warning("Selective recomputation is off: with %d ranks, each would pick different tokens", ranks)
    if support.version_note:
        log.warning("SemBlend: %s", support.version_note)


def make_worker_half(
    vllm_config: VllmConfig,
    kv_cache_config: KVCacheConfig,
    support: Support,
    options: ConnectorOptions,
    model_runner: Any,
    log: logging.Logger,
) -> tuple[Readiness, WorkerHalf | None]:
    """Probe and self-test, in blocks that are not used yet. A worker that fails returns its readiness and no half."""
    if not support.usable:
        return Readiness(support.reason, False, "", 1), None
    faults: list[str] = []
    border = Border(lambda fault: faults.append(fault.error), log)
    cache = border.call("self_test", "", partial(_probe, vllm_config, kv_cache_config, support), None)
    if not agree_in_group(cache is not None) or cache is None:  # the next test is a forward pass of all ranks
        return Readiness(f"self-test failed: {faults[0] if faults else 'on another rank'}", False, "", 1), None
    assert support.rope_theta is not None
    assert support.rotary_dim is not None
    rotation = half_split(support.rope_theta, support.rotary_dim)
    sparse_forward = None
    if support.sparse_forward and model_runner is not None:
        limit = vllm_config.scheduler_config.max_num_batched_tokens
        sparse_forward = SparseForward(model_runner, vllm_config, cache, limit)
        vocabulary = vllm_config.model_config.get_vocab_size()
        proof = partial(_prove_rotation, cache, sparse_forward, rotation, vocabulary)
        if not border.call("self_test", "", proof, False):
            return Readiness(f"self-test failed: {faults[0]}", False, "", 1), None
    shape = KVShape(support.layers, support.kv_heads, support.head_dim, cache.dtype)
    store = open_donor_store(shape, options.host_bytes)
    ranks = vllm_config.parallel_config.world_size
    half = WorkerHalf(cache, store, rotation, sparse_forward, agree_in_group, log, ranks=ranks)
    return Readiness("", sparse_forward is not None, cache.layout.digest(), store.bytes_per_token), half


def _probe(vllm_config: VllmConfig, kv_cache_config: KVCacheConfig, support: Support) -> AttentionCache:
    names = kv_cache_config.kv_cache_groups[0].layer_names
    cache = AttentionCache(vllm_config.compilation_config.static_forward_context, names, support.block_tokens)
    with torch.inference_mode():
        cache.probe(cache.blocks - 1, support.kv_heads, support.head_dim)
    return cache


def _prove_rotation(cache: AttentionCache, sparse_forward: SparseForward, rotation: Rotation, vocabulary: int) -> bool:
    scratch = list(range(cache.blocks - -(-POSITIONS // cache.block_tokens), cache.blocks))
    with torch.inference_mode():
        check_rotation(cache, sparse_forward, rotation, scratch, vocabulary)
        cache.zero(scratch)
    return True


def agree_in_group(mine: bool) -> bool:
    """Whether every tensor-parallel rank agrees. They must continue together: a forward pass waits for all of them."""
    group = get_tp_group()
    if group.world_size == 1:
        return mine
    vote = torch.tensor([int(mine)], dtype=torch.int32)
    torch.distributed.all_reduce(vote, op=torch.distributed.ReduceOp.MIN, group=group.cpu_group)
    return bool(vote.item())
