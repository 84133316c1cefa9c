"""The engine's own scheduler and our connector, with workers whose cache holds traces instead of tensors."""

from __future__ import annotations

import logging
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import torch
from tests.engines.vllm_inside.engine import (
    AsyncScheduler,
    KVConnectorOutput,
    KVOutputAggregator,
    ModelRunnerOutput,
    Request,
    RequestStatus,
    SamplingParams,
    Scheduler,
    StructuredOutputManager,
    get_request_block_hasher,
    init_none_hash,
    sha256,
)
from tests.engines.vllm_inside.tiny import BLOCK, VOCABULARY, cache_config, engine_config
from tests.engines.vllm_inside.traces import BYTES_PER_TOKEN, WIDTH, TraceCache, TraceForward
from tests.ranks import RankThreads

from semblend.integration.vllm import start as starting
from semblend.integration.vllm.commands import Readiness
from semblend.integration.vllm.transfers import HostTransfers
from semblend.integration.vllm.worker_half import WorkerHalf
from semblend.kv.donor_store import KVShape
from semblend.kv.host_store import HostStore
from semblend.kv.rope import LayerRotations, half_split
from semblend.pipeline.planner import Planner
from semblend.plan.reuse_cost import Timing
from semblend.settings import Settings

LOG = logging.getLogger("semblend.tests")
LOG.disabled = True
init_none_hash(sha256)


@dataclass
class Rank:
    cache: TraceCache
    store: HostStore
    half: WorkerHalf
    forward: TraceForward
    fail_loads: bool = False


class Events(list[Any]):
    def publish(self, batch: Any) -> None:
        self.extend(batch.events)

    def shutdown(self) -> None:
        """Part of the publisher's surface."""


@dataclass
class Sent:
    """One scheduled step whose result the scheduler has not seen yet."""

    output: Any
    result: Any


@dataclass
class World:
    scheduler: Any
    ranks: list[Rank]
    pool: ThreadPoolExecutor
    depth: int
    events: Events
    pending: deque[Sent] = field(default_factory=deque)
    commands: list[Any] = field(default_factory=list)
    reports: list[Any] = field(default_factory=list)
    replies: dict[str, Any] = field(default_factory=dict)
    known: dict[str, list[int]] = field(default_factory=dict)

    @property
    def half(self) -> Any:
        return self.scheduler.connector._half

    def add(self, request_id: str, prompt: list[int], outputs: int, salt: str | None = None, **hints: Any) -> Any:
        params = SamplingParams(
            max_tokens=outputs, ignore_eos=True, extra_args={"kv_transfer_params": {"semblend": hints}}
        )
        request = Request(
            request_id,
            list(prompt),
            params,
            None,
            cache_salt=salt,
            block_hasher=get_request_block_hasher(BLOCK, sha256),
        )
        self.known[request_id] = prompt
        self.scheduler.add_request(request)
        return request

    def step(self) -> None:
        """Schedule and execute one step; results reach the scheduler ``depth`` steps later, in order."""
        self.send()
        while len(self.pending) >= self.depth:
            self.deliver()

    def send(self) -> None:
        output = self.scheduler.schedule()
        self.commands.append(output.kv_connector_metadata)
        self.pending.append(Sent(output, self._execute(output)))

    def deliver(self) -> None:
        sent = self.pending.popleft()
        meta = sent.result.kv_connector_output.kv_connector_worker_meta
        if meta is not None:
            self.reports.append(meta)
        answers = self.scheduler.update_from_output(sent.output, sent.result)
        for batch in answers.values():
            for answer in batch.outputs:
                if answer.kv_transfer_params is not None:
                    self.replies[answer.request_id] = answer.kv_transfer_params["semblend"]

    def abort(self, request_id: str) -> None:
        self.scheduler.finish_requests(request_id, RequestStatus.FINISHED_ABORTED)

    def fail_next(self, draws: Random) -> None:
        """The next step cannot read donors, or cannot read the engine's cache, or cannot compute, on one rank."""
        victim = draws.choice(self.ranks)
        victim.fail_loads = draws.random() < 0.5
        victim.cache.fail_reads = draws.random() < 0.3
        victim.forward.fails = not victim.fail_loads and len(self.ranks) == 1

    def drain(self, limit: int = 400) -> None:
        while self.scheduler.has_requests():
            self.step()
            limit -= 1
            assert limit, "the engine does not come to rest"
            if not self.scheduler.has_requests():
                self.flush()
        self.flush()
        for _ in range(2):
            self.send()
            self.flush()

    def flush(self) -> None:
        while self.pending:
            self.deliver()

    def serve(self, request_id: str, prompt: list[int], outputs: int = 1, **hints: Any) -> Any:
        self.add(request_id, prompt, outputs, **hints)
        self.drain()
        return self.replies[request_id]

    def _execute(self, output: Any) -> Any:
        requests = {i: self.scheduler.requests[i] for i in output.num_scheduled_tokens}
        tables = {i: list(self.scheduler.kv_cache_manager.get_block_ids(i)[0]) for i in requests}
        work = []
        for i, count in output.num_scheduled_tokens.items():
            start = requests[i].num_computed_tokens - count
            work.append((tables[i], start, sequence(requests[i], start + count)[start:]))
        commands = output.kv_connector_metadata
        parts = list(self.pool.map(lambda rank: _run(rank, commands, work, output.has_sync_kv_loads), self.ranks))
        ids = list(requests)
        sampled = [
            [] if requests[i].is_prefill_chunk else [token_at(requests[i], requests[i].num_computed_tokens)]
            for i in ids
        ]
        results = [
            ModelRunnerOutput(ids, {i: n for n, i in enumerate(ids)}, sampled, kv_connector_output=part)
            for part in parts
        ]
        return KVOutputAggregator(len(results)).aggregate(results, output_rank=0)


def token_at(request: Any, position: int) -> int:
    """What the model says at a position: the same in every attempt."""
    prompt: list[int] = request.prompt_token_ids
    return prompt[position] if position < len(prompt) else (sum(prompt[-8:]) + 31 * position) % VOCABULARY


def sequence(request: Any, length: int) -> list[int]:
    return [token_at(request, position) for position in range(length)]


def _run(rank: Rank, commands: Any, work: list[Any], loads_first: bool) -> Any:
    """A worker's step as ``KVConnectorModelRunnerMixin`` orders it."""
    moves: Any = rank.half._transfers
    load = moves.load
    if rank.fail_loads:
        moves.load = lambda runs, *_: _broken() if runs else None
    rank.half.protect_captured(commands)
    rank.half.begin_step()
    if loads_first:
        rank.half.load(commands)
    for table, start, tokens in work:
        rank.cache.forward(table, start, tokens)
    if not loads_first:
        rank.half.load(commands)
    rank.half.save(commands)
    moves.load, rank.fail_loads, rank.cache.fail_reads = load, False, False
    rank.forward.fails = False
    return KVConnectorOutput(
        finished_sending=rank.half.take_released(),
        invalid_block_ids=rank.half.take_invalid_blocks(),
        kv_connector_worker_meta=rank.half.take_report(),
    )


def _broken(*_: Any) -> Any:
    raise OSError("injected")


def make_planner(options: Any, log: Any) -> Planner:
    return Planner(settings=Settings(embedder="none"), gates=options.gates, budget_bytes=options.index_bytes)


def make_world(
    directory: Path,
    *,
    blocks: int = 40,
    ranks: int = 1,
    depth: int = 1,
    batch_tokens: int = 256,
    host_tokens: int = 1024,
    emit: Any = None,
    probe: tuple[Timing, ...] = (),
    **options: Any,
) -> World:
    setattr(starting, "make_planner", make_planner)  # noqa: B010 - the engine makes the connector itself
    # Traces have no attention to ask and no first layer to compare with.
    untold = {"verify_loads": False, "recompute_fraction": 0.0, "min_inexact_tokens": 0}
    host_bytes = max(1 << 20, host_tokens * BYTES_PER_TOKEN)
    options = {"host_bytes": host_bytes, "boundary_recompute_tokens": 8, **untold, **options}
    config = _config(directory, options, batch_tokens, ranks, depth)
    config.cache_config.num_gpu_blocks = blocks
    scheduler = (AsyncScheduler if depth > 1 else Scheduler)(
        config, cache_config(blocks), StructuredOutputManager(config), BLOCK, log_stats=True
    )
    events = Events()
    scheduler.kv_event_publisher = events
    connector = scheduler.connector
    if emit is not None:
        connector._report = emit
    ready = Readiness("", True, "layout", BYTES_PER_TOKEN, probe=probe)
    connector.set_xfer_handshake_metadata(dict.fromkeys(range(ranks), ready))
    connector._half.donors.held.book._budget = host_tokens * BYTES_PER_TOKEN  # also below what an option may say
    group = RankThreads(ranks)
    made = []
    for rank in range(ranks):
        cache = TraceCache(blocks, BLOCK)
        store = HostStore(KVShape(1, 1, WIDTH, torch.int64), options["host_bytes"])
        forward = TraceForward(cache)
        rotations = LayerRotations.same(half_split(1e4, WIDTH), 1)
        transfers = HostTransfers(cache, store, rotations)  # type: ignore[arg-type]
        half = WorkerHalf(cache, transfers, forward, group.of(rank), LOG)  # type: ignore[arg-type]
        made.append(Rank(cache, store, half, forward))
    return World(scheduler, made, ThreadPoolExecutor(ranks), depth, events)


_CONFIGS: dict[str, Any] = {}


def _config(directory: Path, options: dict[str, Any], batch_tokens: int, ranks: int, depth: int) -> Any:
    """The engine's configuration takes a second to make and is made once per shape."""
    key = repr((sorted(options.items()), batch_tokens, ranks, depth))
    if key not in _CONFIGS:
        _CONFIGS[key] = engine_config(directory, options, batch_tokens=batch_tokens, length=1024, ranks=ranks)
        _CONFIGS[key].scheduler_config.async_scheduling = depth > 1
    return _CONFIGS[key]
