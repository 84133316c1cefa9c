"""The class vLLM loads by ``kv_connector_module_path``: a thin facade over two halves.

It calls the scheduler half in the scheduler's process and the worker half in a worker's. A fault of ours is contained
here and becomes cold prefill.

The halves are imported when a connector is made, not with this module. The planner's compiler (numba) must not be
loaded before the engine has made its worker: vLLM then walks all loaded modules, and fails on the compiler's objects.
With the engine core in the server's own process (``VLLM_ENABLE_V1_MULTIPROCESSING=0``) this module comes first.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from vllm.config import CUDAGraphMode
from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory
from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorHandshakeMetadata,
    KVConnectorMetadata,
    KVConnectorRole,
    KVConnectorTransferResults,
    SupportsHMA,
)
from vllm.logger import init_logger

from semblend.contract import Event
from semblend.integration.border import Border
from semblend.integration.event_sink import EventSink
from semblend.integration.vllm.commands import Readiness, StepCommands, StepReport
from semblend.integration.vllm.stats import SemBlendPromMetrics, SemBlendStats
from semblend.integration.vllm.support import examine

if TYPE_CHECKING:
    import torch
    from vllm.config import VllmConfig
    from vllm.distributed.kv_transfer.kv_connector.v1.metrics import (
        KVConnectorPromMetrics,
        KVConnectorStats,
        PromMetric,
        PromMetricT,
    )
    from vllm.forward_context import ForwardContext
    from vllm.v1.attention.backend import AttentionMetadata
    from vllm.v1.core.kv_cache_manager import KVCacheBlocks, KVCacheManager
    from vllm.v1.core.sched.output import SchedulerOutput
    from vllm.v1.kv_cache_interface import KVCacheConfig
    from vllm.v1.outputs import KVConnectorOutput
    from vllm.v1.request import Request

    from semblend.integration.announce import Announcer
    from semblend.integration.vllm.scheduler_half import SchedulerHalf
    from semblend.integration.vllm.worker_half import WorkerHalf

logger = init_logger("vllm.semblend")  # under the engine's own handlers


class SemBlendConnectorV1(KVConnectorBase_V1, SupportsHMA):
    """Non-prefix KV reuse on stock vLLM. See ``docs/guides/vllm.md``.

    Supports the hybrid memory allocator so that the engine starts with every model; several groups of blocks are
    declined (``support.py``).
    """

    def __init__(self, vllm_config: VllmConfig, role: KVConnectorRole, kv_cache_config: KVCacheConfig) -> None:
        from semblend.integration.announce import SILENT  # noqa: PLC0415
        from semblend.integration.answer_budgets import open_budgets, with_budgets  # noqa: PLC0415
        from semblend.integration.core.start_up import make_announcer, make_decoder  # noqa: PLC0415
        from semblend.integration.vllm import start  # noqa: PLC0415
        from semblend.integration.vllm.options import parse_options  # noqa: PLC0415

        super().__init__(vllm_config, role, kv_cache_config)
        self._options = parse_options(self._kv_transfer_config.kv_connector_extra_config)
        self._support = examine(vllm_config, kv_cache_config, experimental_gpu=self._options.experimental_gpu)
        self._sink = EventSink(self._options.events if role is KVConnectorRole.SCHEDULER else None, logger, "vllm")
        self._border = Border(self._report, logger)
        self._announcer: Announcer = SILENT
        self._scheduler: SchedulerHalf | None = None
        self._worker: WorkerHalf | None = None
        self._model_runner: Any = None
        if role is KVConnectorRole.SCHEDULER:
            if self._support.usable:  # the scheduler reads the policy when it has made its connector
                self._kv_transfer_config.kv_load_failure_policy = "fail" if self._fails_requests else "recompute"
            budgets = open_budgets(self._options, self._options.gates, "vllm", vllm_config.model_config.model, logger)
            gates = with_budgets(self._options.gates, budgets, self._options.max_answer_loss)
            self._options = replace(self._options, gates=gates)
            self._fidelity = self._options.fidelity_gate(logger.warning, budgets)
            self._planner = start.make_planner(self._options, logger)
            load = partial(start.load_tokenizer, vllm_config)
            self._decoder = make_decoder(self._planner, self._border, load)
            self._announcer = make_announcer(
                self._planner, self._border, vllm_config.parallel_config.data_parallel_rank
            )
            self._scheduler = self._start_scheduler(
                Readiness("the workers have not reported their self-test yet", False, "", 1)
            )

    @property
    def requires_kv_delivery(self) -> bool:
        """Whether a preempted request's tokens in flight are dropped: after a failed load they would be wrong."""
        return self._fails_requests

    @property
    def _fails_requests(self) -> bool:
        """Whether a request whose claim can be neither loaded nor computed ends with an error."""
        return self._support.usable and not self._support.engine_recovers

    def _report(self, event: Event) -> None:
        self._sink.write(event)

    # -- worker side ---------------------------------------------------------------------------------------------------

    def lend_model(self, model_runner: Any) -> None:
        """Called by our worker class once the KV cache exists."""
        self._model_runner = model_runner

    def get_handshake_metadata(self) -> KVConnectorHandshakeMetadata | None:
        """Runs the self-test: the engine calls this once per worker, after it has its cache and before it serves."""
        from semblend.integration.vllm import start  # noqa: PLC0415

        readiness, self._worker = start.make_worker_half(
            self._vllm_config, self._kv_cache_config, self._support, self._options, self._model_runner, logger
        )
        return readiness

    def register_kv_caches(self, kv_caches: dict[str, torch.Tensor]) -> None:
        """Nothing to do: layers are reached through the engine's forward context."""

    def bind_connector_metadata(self, connector_metadata: KVConnectorMetadata) -> None:
        super().bind_connector_metadata(connector_metadata)
        if self._worker is not None:
            self._worker.begin_step()

    def start_load_kv(self, forward_context: ForwardContext, **kwargs: Any) -> None:
        commands = self._commands()
        if self._worker is not None and commands is not None:
            self._worker.load(commands)
            if forward_context.attn_metadata is None or forward_context.cudagraph_runtime_mode is CUDAGraphMode.FULL:
                self._worker.wait_for_layers()  # the replay of a full graph does not ask layer by layer

    def handle_preemptions(self, kv_connector_metadata: KVConnectorMetadata) -> None:
        if self._worker is not None and isinstance(kv_connector_metadata, StepCommands):
            self._worker.protect_captured(kv_connector_metadata)

    def wait_for_layer_load(self, layer_name: str) -> None:
        if self._worker is not None:
            self._worker.wait_for_layer(layer_name)

    def save_kv_layer(
        self, layer_name: str, kv_layer: torch.Tensor, attn_metadata: AttentionMetadata, **kwargs: Any
    ) -> None:
        """Captures run after the step's forward pass."""

    def wait_for_save(self) -> None:
        commands = self._commands()
        if self._worker is not None and commands is not None:
            self._worker.save(commands)

    def get_transfer_results(self, finished_req_ids: set[str]) -> KVConnectorTransferResults:
        released = self._worker.take_released() if self._worker is not None else set()
        return KVConnectorTransferResults(finished_sending=released)

    def get_block_ids_with_load_errors(self) -> set[int]:
        return self._worker.take_invalid_blocks() if self._worker is not None else set()

    def build_connector_worker_meta(self) -> StepReport | None:
        return self._worker.take_report() if self._worker is not None else None

    def _commands(self) -> StepCommands | None:
        metadata = self._connector_metadata
        return metadata if isinstance(metadata, StepCommands) else None

    # -- scheduler side ------------------------------------------------------------------------------------------------

    def set_xfer_handshake_metadata(self, metadata: dict[int, KVConnectorHandshakeMetadata]) -> None:
        """Start with the self-test results of all ranks: if one rank cannot serve, none does."""
        from semblend.integration.vllm import start  # noqa: PLC0415

        verdicts = [verdict for verdict in metadata.values() if isinstance(verdict, Readiness)]
        worst = min(verdicts, key=lambda verdict: (not verdict.fault, verdict.sparse_forward), default=None)
        if worst is not None and len(verdicts) == self._vllm_config.parallel_config.world_size:
            start.announce(self._support, worst, self._vllm_config, self._options, logger)
            self._scheduler = self._start_scheduler(worst)
            if self._kv_cache_manager is not None:
                self._scheduler.bind(self._kv_cache_manager)

    def _start_scheduler(self, readiness: Readiness) -> SchedulerHalf:
        from semblend.integration.vllm import start  # noqa: PLC0415

        return start.start_scheduler_half(
            self._vllm_config,
            self._kv_cache_config,
            self._support,
            self._options,
            self._planner,
            self._decoder,
            readiness,
            self._report,
            self._announcer,
            self._fidelity,
        )

    def bind_kv_cache_manager(self, kv_cache_manager: KVCacheManager) -> None:
        super().bind_kv_cache_manager(kv_cache_manager)
        self._half.bind(kv_cache_manager)

    @property
    def _half(self) -> SchedulerHalf:
        assert self._scheduler is not None, "called in a worker"
        return self._scheduler

    def on_new_request(self, request: Request) -> None:
        self._border.call("arrive", request.request_id, partial(self._half.arrived, request), None)

    def get_num_new_matched_tokens(self, request: Request, num_computed_tokens: int) -> tuple[int | None, bool]:
        half = self._half
        tokens = self._border.call(
            "lookup",
            request.request_id,
            partial(half.matched_tokens, request, num_computed_tokens),
            partial(self._withdraw, request.request_id),
        )
        return tokens, False

    def _withdraw(self, request_id: str) -> int:
        self._fault("lookup")
        self._half.withdraw(request_id)
        return 0

    def update_state_after_alloc(self, request: Request, blocks: KVCacheBlocks, num_external_tokens: int) -> None:
        half = self._half
        self._border.call(
            "allocate",
            request.request_id,
            partial(half.allocated, request, blocks, num_external_tokens),
            partial(self._fail_claim, request, blocks, num_external_tokens),
        )

    def _fail_claim(self, request: Request, blocks: KVCacheBlocks, num_external_tokens: int) -> None:
        self._fault("allocate")
        if num_external_tokens:
            self._half.fail_claim(request, blocks, num_external_tokens, "the load command could not be written")

    def build_connector_meta(self, scheduler_output: SchedulerOutput) -> KVConnectorMetadata:
        half = self._half
        loads = half.take_loads()
        commands = partial(half.commands, loads, scheduler_output)
        return self._border.call("orders", "", commands, partial(self._only, loads))

    def _only(self, loads: list[Any]) -> StepCommands:
        self._fault("orders")
        return StepCommands(loads, releases=self._half.give_up_captures(), frees_captured=True)

    def update_connector_output(self, connector_output: KVConnectorOutput) -> None:
        report = connector_output.kv_connector_worker_meta
        if isinstance(report, StepReport):
            half = self._half
            self._border.call("news", "", partial(half.on_report, report), partial(self._fault, "news"))
            self._border.call("donors", "", partial(half.donors.on_report, report), partial(self._lose, report))

    def _lose(self, report: StepReport) -> None:
        self._fault("donors")
        self._half.donors.lose(report)

    def request_finished(self, request: Request, block_ids: list[int]) -> tuple[bool, dict[str, Any] | None]:
        half = self._half
        return self._border.call(
            "finish",
            request.request_id,
            partial(half.finished, request, block_ids),
            partial(self._finish_without, request),
        )

    def request_finished_all_groups(
        self, request: Request, block_ids: tuple[list[int], ...]
    ) -> tuple[bool, dict[str, Any] | None]:
        """Only one group is ever claimed or captured; a model without attention has none."""
        return self.request_finished(request, block_ids[0] if block_ids else [])

    def _finish_without(self, request: Request) -> tuple[bool, dict[str, Any] | None]:
        self._fault("finish")
        self._half.abandon(request)
        return False, None

    def has_pending_block_frees(self) -> bool:
        """The engine calls this when it could not place a request."""
        return self._border.call("pressure", "", self._half.lacks_blocks, False)

    def reset_cache(self) -> bool | None:
        """``POST /reset_prefix_cache?reset_external=true``: drop every donor."""
        return self._border.call("reset", "", self._reset, False)

    def _reset(self) -> bool:
        self._half.reset()
        return True

    def shutdown(self) -> None:
        if self._scheduler is not None:
            self._scheduler.close()
        self._announcer.close()
        self._sink.close()

    def _fault(self, stage: str) -> None:
        self._half.metrics.count("faults", stage)

    # -- metrics -------------------------------------------------------------------------------------------------------

    def get_kv_connector_stats(self) -> KVConnectorStats | None:
        """The scheduler calls this in every step that it has processed, just before it publishes cache events."""
        if self._scheduler is None:
            return None
        self._scheduler.silence_private_blocks()
        taken = self._scheduler.metrics.take()
        return SemBlendStats(data=taken) if taken is not None else None

    @classmethod
    def build_kv_connector_stats(cls, data: dict[str, Any] | None = None) -> KVConnectorStats | None:
        return SemBlendStats(data=data) if data is not None else SemBlendStats()

    @classmethod
    def build_prom_metrics(
        cls,
        vllm_config: VllmConfig,
        metric_types: dict[type[PromMetric], type[PromMetricT]],
        labelnames: list[str],
        per_engine_labelvalues: dict[int, list[object]],
    ) -> KVConnectorPromMetrics:
        return SemBlendPromMetrics(vllm_config, metric_types, labelnames, per_engine_labelvalues)


def _register() -> None:
    """MultiConnector gives each child's statistics back to the class that is registered under the child's name."""
    name = SemBlendConnectorV1.__name__
    try:
        KVConnectorFactory.get_connector_class_by_name(name)
    except ValueError:
        KVConnectorFactory.register_connector(name, __name__, name)


_register()
