"""Builds the halves at start-up: the planner in the scheduler's process, store and self-test in the workers'."""

from __future__ import annotations

import math
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np
import torch
from vllm.distributed.parallel_state import get_tp_group
from vllm.platforms import current_platform
from vllm.tokenizers.registry import cached_tokenizer_from_config

import vllm
from semblend.contract import TokenRange
from semblend.integration.border import Border
from semblend.integration.core.cost_probe import MAX_CONTEXT, probe
from semblend.integration.core.rotation_proof import Proof
from semblend.integration.core.start_up import log_disabled, log_proof, small_donor_memory, warm_up
from semblend.integration.gpu_evidence import Kind, architecture_of, log_acceptance
from semblend.integration.vllm.attention_cache import AttentionCache
from semblend.integration.vllm.commands import Readiness
from semblend.integration.vllm.look_up import Capabilities
from semblend.integration.vllm.namespace import deployment_namespace
from semblend.integration.vllm.scheduler_half import SchedulerHalf
from semblend.integration.vllm.self_test import prove_on_model
from semblend.integration.vllm.sparse_forward import SparseForward
from semblend.integration.vllm.transfers import DeviceTransfers, HostTransfers, Transfers, check_transfers
from semblend.integration.vllm.worker_half import WorkerHalf
from semblend.kv.arena import Arena, arena_bytes
from semblend.kv.donor_store import KVShape, open_donor_store
from semblend.kv.rope import LayerRotations, no_rotation
from semblend.kv.streams import DeviceStreams, register_pinned
from semblend.pipeline.planner import Planner
from semblend.plan.fidelity import OPEN, FidelityGate

if TYPE_CHECKING:
    import logging
    from collections.abc import Callable, Sequence

    from vllm.config import ModelConfig, VllmConfig
    from vllm.v1.kv_cache_interface import KVCacheConfig

    from semblend.contract import Event
    from semblend.integration.announce import Announcer
    from semblend.integration.texts import TextDecoder
    from semblend.integration.vllm.fleet_worker import FleetWorker
    from semblend.integration.vllm.options import ConnectorOptions
    from semblend.integration.vllm.support import Support
    from semblend.plan.reuse_cost import Timing

# Relative, of last hidden states: fusion changes roundings, a misread input gives errors of the order of 1.
GRAPH_TOLERANCE: Final = 0.05
T = TypeVar("T")


def make_planner(options: ConnectorOptions, log: logging.Logger) -> Planner:
    """A warm planner: no request pays for the compilation of its loops."""
    warm_up(log)
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
        fleet_shape=readiness.fleet_shape,
        probe=readiness.probe,
    )
    deployment = deployment_namespace(vllm_config, readiness.layout_digest or None)
    return SchedulerHalf(options, planner, decoder, deployment, capabilities, emit, announcer, fidelity)


def announce(
    support: Support, readiness: Readiness, vllm_config: VllmConfig, options: ConnectorOptions, log: logging.Logger
) -> None:
    """Log once what this engine can do, and why not more."""
    if not support.usable or readiness.fault:
        reason = support.reason or readiness.fault
        log_disabled(log, reason)
    elif not readiness.sparse_forward:
        log.warning("SemBlend is restricted to prefix-shaped loads: %s", support.sparse_reason)
    else:
        log.info("SemBlend is ready: self-test passed, layout %s", readiness.layout_digest)
        tokens = options.host_bytes // readiness.bytes_per_token
        log.info("SemBlend keeps donors in %s bytes per worker: %s tokens", f"{options.host_bytes:,}", f"{tokens:,}")
        context = vllm_config.model_config.max_model_len
        if small := small_donor_memory(options.host_bytes, readiness.bytes_per_token, context):
            log.warning("SemBlend: %s", small)
        if support.experimental:
            kind = Kind(
                device=readiness.device,
                backend=readiness.backend,
                architecture=architecture_of(vllm_config.model_config.hf_config),
                engine="vllm",
                engine_version=vllm.__version__,
            )
            log_acceptance(log, kind, options, support.experimental)
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
    ranks = TensorParallelRanks()
    faults: list[str] = []
    border = Border(lambda fault: faults.append(fault.error), log)

    def on_all_ranks(step: Callable[[], T | None]) -> T | None:
        """The result of a step of the self-test; None if it failed on any rank, so that no rank continues alone."""
        result = border.call("self_test", "", step, None)
        return result if ranks.agree(result is not None) else None

    def failed() -> tuple[Readiness, None]:
        return Readiness(f"self-test failed: {faults[0] if faults else 'on another rank'}", False, "", 1), None

    if (cache := on_all_ranks(partial(_probe, vllm_config, kv_cache_config, support))) is None:
        return failed()
    sparse_forward = None
    rotations = LayerRotations.same(no_rotation(), support.layers)  # without the model, KV stays at its own positions
    if support.sparse_forward and model_runner is None and not support.engine_recovers:
        return Readiness("the worker class did not provide its model", False, "", 1), None
    if support.sparse_forward and model_runner is not None:
        limit = vllm_config.scheduler_config.max_num_batched_tokens
        make_forward = partial(SparseForward, model_runner, vllm_config, cache, limit)
        if (sparse_forward := on_all_ranks(make_forward)) is None:
            return failed()
        prove = partial(_prove, vllm_config, model_runner.get_model(), cache, sparse_forward, log)
        if (proof := on_all_ranks(prove)) is None:
            return failed()
        rotations = proof.rotations
        compare = partial(_graph_error, cache, sparse_forward, vllm_config.model_config.get_vocab_size())
        error = border.call("self_test", "", compare, math.inf)
        if error is not None:  # the model is compiled
            sparse_forward.uses_graph = ranks.agree(error <= GRAPH_TOLERANCE)
            name = "compiled" if sparse_forward.uses_graph else "uncompiled"
            log.info("SemBlend computes gaps with the %s model: the two differ by %.1g", name, error)
    shape = KVShape(support.layers, support.kv_heads, support.head_dim, cache.dtype, has_values=not cache.latent_dim)
    transfers = _make_transfers(cache, shape, rotations, options.host_bytes, log)
    fleet = _share_donors(vllm_config, options, cache, transfers, shape, log) if options.fleet.is_on else None
    half = WorkerHalf(cache, transfers, sparse_forward, ranks, log, fleet)
    digest = f"{cache.layout.digest()}-{rotations.digest()}"
    device, backend = border.call("self_test", "", partial(_served_on, cache), ("", ""))
    shared = None if fleet is None else fleet.shape
    probed = border.call("self_test", "", partial(_probe_costs, cache, sparse_forward, vllm_config.model_config), ())
    ready = sparse_forward is not None
    return Readiness("", ready, digest, shape.bytes_per_token, device, backend, shared, probed), half


def _share_donors(
    vllm_config: VllmConfig,
    options: ConnectorOptions,
    cache: AttentionCache,
    transfers: Transfers,
    shape: KVShape,
    log: logging.Logger,
) -> FleetWorker | None:
    """None, with a warning, where donors cannot be exchanged with other replicas yet."""
    if vllm_config.parallel_config.world_size > 1:
        reason = "a worker holds only a part of each donor"
    elif not isinstance(transfers, HostTransfers):
        reason = "donors are copied by a stream of the device"
    elif cache.eight_bits is not None:
        reason = "the cache has 8 bits and a scale"
    else:
        from semblend.integration.core.fleet_access import FleetAccess  # noqa: PLC0415
        from semblend.integration.vllm.fleet_worker import FleetWorker  # noqa: PLC0415

        return FleetWorker(transfers.store, shape, FleetAccess(options.fleet), log)
    log.warning("SemBlend shares no donors with other replicas: %s", reason)
    return None


def _served_on(cache: AttentionCache) -> tuple[str, str]:
    """The engine's names of the device and of the attention backend; as ``kvmend doctor --gpu`` records them."""
    if current_platform.is_cpu():
        return "", ""
    return current_platform.get_device_name(), str(cache.layers[0].get_attn_backend().get_name())


def _make_transfers(
    cache: AttentionCache, shape: KVShape, rotations: LayerRotations, max_bytes: int, log: logging.Logger
) -> Transfers:
    """By a stream of our own where the cache is on a device and they pass their test, else directly.

    On a stream, rows move as they lie in the cache, which 8 bits with a scale do not allow.
    """
    if cache.device.type != "cpu" and cache.eight_bits is None:
        made = _device_transfers(cache, shape, rotations, max_bytes, log)
        if made is not None:
            return made
    return HostTransfers(cache, open_donor_store(shape, max_bytes), rotations)


def _device_transfers(
    cache: AttentionCache, shape: KVShape, rotations: LayerRotations, max_bytes: int, log: logging.Logger
) -> Transfers | None:
    """None, with a warning, where memory cannot be pinned or a round trip gives other numbers."""

    def make() -> Transfers:
        memory = register_pinned(arena_bytes(shape, max_bytes))
        streams = DeviceStreams(cache.device)
        made = DeviceTransfers(cache.pages(), Arena(memory, shape, max_bytes), rotations, streams)
        with torch.inference_mode():
            check_transfers(cache, made, rotations)
        return made

    faults: list[str] = []
    made = Border(lambda fault: faults.append(fault.error), log).call("self_test", "", make, None)
    if made is None:
        log.warning("SemBlend copies run by run and layer by layer on this device, which is slow: %s", faults[0])
    return made


def _probe(vllm_config: VllmConfig, kv_cache_config: KVCacheConfig, support: Support) -> AttentionCache:
    names = kv_cache_config.kv_cache_groups[0].layer_names
    context = vllm_config.compilation_config.static_forward_context
    cache = AttentionCache(context, names, support.block_tokens, vllm_config.model_config.dtype)
    with torch.inference_mode():
        cache.probe(cache.blocks - 1, support.kv_heads, support.head_dim)
    return cache


def _graph_error(cache: AttentionCache, sparse_forward: SparseForward, vocabulary: int) -> float | None:
    scratch = list(range(cache.blocks - 2, cache.blocks))
    with torch.inference_mode():
        error = sparse_forward.graph_error(torch.tensor(scratch, device=cache.device), vocabulary)
        cache.zero(scratch)
    return error


def _probe_costs(
    cache: AttentionCache, sparse_forward: SparseForward | None, settings: ModelConfig
) -> tuple[Timing, ...]:
    """What computing costs. Not on a device, which computes while the time of its commands is taken."""
    if sparse_forward is None or cache.device.type != "cpu":
        return ()
    room = min(settings.max_model_len, MAX_CONTEXT, cache.blocks * cache.block_tokens // 2)
    scratch = list(range(cache.blocks - room // cache.block_tokens, cache.blocks))
    blocks = torch.tensor(scratch, dtype=torch.int64)

    def compute(ranges: Sequence[TokenRange]) -> None:
        token_ids = np.linspace(1, settings.get_vocab_size() - 1, sum(map(len, ranges))).astype(np.int64)
        sparse_forward.compute(blocks, ranges, token_ids)

    with torch.inference_mode():
        try:
            return probe(compute, len(scratch) * cache.block_tokens)
        finally:
            cache.zero(scratch)


def _prove(
    vllm_config: VllmConfig, model: Any, cache: AttentionCache, sparse_forward: SparseForward, log: logging.Logger
) -> Proof:
    started = time.perf_counter()
    proof = prove_on_model(vllm_config, model, cache, sparse_forward)
    log_proof(log, proof, time.perf_counter() - started)
    return proof


class TensorParallelRanks:
    """The engine's tensor-parallel group. A forward pass waits for all of its ranks, so they continue together."""

    @property
    def size(self) -> int:
        return int(get_tp_group().world_size)

    def agree(self, mine: bool) -> bool:
        return bool(torch.stack(list(self.gather(torch.tensor(mine)))).all())

    def gather(self, part: torch.Tensor) -> Sequence[torch.Tensor]:
        group = get_tp_group()
        own = part.cpu().contiguous()
        if group.world_size == 1:
            return (own,)
        gathered = [torch.empty_like(own) for _ in range(group.world_size)]
        torch.distributed.all_gather(gathered, own, group=group.cpu_group)
        return gathered
