"""Computes chosen positions of one request in one call of the engine's own model; the other positions are in the cache.

Each contiguous group of positions is a virtual sequence on the request's block table whose context ends at its last
position. Every layer writes K and V before it attends, and causality makes one pass equal to the groups in order.
"""

from __future__ import annotations

import copy
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from vllm.config import CompilationMode, CUDAGraphMode, set_current_vllm_config
from vllm.forward_context import set_forward_context
from vllm.v1.attention.backend import CommonAttentionMetadata
from vllm.v1.worker.utils import AttentionGroup

from semblend.contract import TokenRange
from semblend.integration.core.open_request import in_passes
from semblend.integration.vllm.attention_cache import AttentionCache

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from vllm.config import VllmConfig


class KernelBlockError(Exception):
    """The attention kernels address blocks of another size than the block table does."""


class SparseForward:
    """Holds the engine's model runner; made by the worker class, used by the worker half between two engine steps."""

    def __init__(self, runner: Any, vllm_config: VllmConfig, cache: AttentionCache, max_tokens: int) -> None:
        self._runner = runner
        self._config = vllm_config
        self._cache = cache
        self._groups = own_attention_groups(runner, vllm_config)
        # A compiled graph was traced for inputs of these types that begin at the start of their memory.
        with torch.inference_mode(False):  # tensors made in inference mode could not be written outside of it
            self._input_ids = torch.zeros(max_tokens, dtype=torch.int32, device=runner.device)
            self._positions = torch.zeros(max_tokens, dtype=torch.int64, device=runner.device)
        self._forwards = _own_forwards(cache)
        self.uses_graph = False
        self.max_tokens = max_tokens
        # The backends size their buffers for this many sequences.
        self.max_rows = vllm_config.scheduler_config.max_num_seqs

    def compute(
        self,
        block_ids: torch.Tensor,
        ranges: Sequence[TokenRange],
        token_ids: NDArray[np.int64],
    ) -> torch.Tensor:
        """Fill ``ranges`` (in order); ``token_ids`` are the ids at their positions, one after another.

        Gives the model's last hidden state of the last batch's positions.
        """
        taken = 0
        hidden = torch.empty(0)
        for batch in self.passes(ranges):
            count = sum(len(part) for part in batch)
            hidden = self._forward(block_ids, batch, token_ids[taken : taken + count])
            taken += count
        if taken != len(token_ids):
            raise ValueError(f"{len(token_ids)} token ids for {taken} positions")
        return hidden

    def passes(self, ranges: Sequence[TokenRange]) -> Iterator[list[TokenRange]]:
        """Consecutive ranges as one forward takes them; what is longer is cut. The order is causal order."""
        return in_passes(ranges, self.max_tokens, self.max_rows)

    def _forward(
        self, block_ids: torch.Tensor, ranges: Sequence[TokenRange], token_ids: NDArray[np.int64]
    ) -> torch.Tensor:
        tokens, rows = len(token_ids), len(ranges)
        positions = np.concatenate([np.arange(part.start, part.end) for part in ranges])
        starts = np.fromiter(accumulate((len(part) for part in ranges), initial=0), np.int32, rows + 1)
        ends = np.fromiter((part.end for part in ranges), np.int32, rows)
        # One copy to the device carries everything that differs between passes.
        staged = torch.from_numpy(np.concatenate([token_ids, positions, starts, ends]).astype(np.int32))
        device_ids, places, query_starts, lengths = staged.to(self._runner.device).split(
            [tokens, tokens, rows + 1, rows]
        )
        input_ids = self._input_ids[:tokens].copy_(device_ids)
        device_positions = self._positions[:tokens].copy_(places)
        blocks = block_ids.to(self._runner.device)[: -(-int(ends.max()) // self._cache.block_tokens)]
        slots = self._cache.slots_of(blocks, device_positions)
        common = CommonAttentionMetadata(
            query_start_loc=query_starts,
            query_start_loc_cpu=torch.from_numpy(starts),
            seq_lens=lengths,
            num_reqs=rows,
            num_actual_tokens=tokens,
            max_query_len=max(len(part) for part in ranges),
            max_seq_len=int(ends.max()),
            block_table_tensor=blocks.to(torch.int32).repeat(rows, 1),
            slot_mapping=slots,
            positions=device_positions,
            is_prefilling=torch.ones(rows, dtype=torch.bool),
            seq_lens_cpu_upper_bound=torch.from_numpy(ends),
        )
        metadata: dict[str, Any] = {}
        for group in self._groups:
            metadata.update(dict.fromkeys(group.layer_names, group.build_metadata(common)))
        with set_forward_context(
            metadata,
            self._config,
            num_tokens=tokens,
            cudagraph_runtime_mode=CUDAGraphMode.NONE,
            slot_mapping=dict.fromkeys(self._cache.names, slots),
            skip_compiled=not self.uses_graph or self._is_observed(),
        ):
            hidden: torch.Tensor = self._runner.get_model()(
                input_ids=input_ids, positions=device_positions, intermediate_tensors=None, inputs_embeds=None
            )
        return hidden

    def _is_observed(self) -> bool:
        """Whether something in the model is hooked or replaced: a compiled graph would not call it."""
        if _own_forwards(self._cache) != self._forwards:
            return True
        inner = self._runner.get_model().modules()
        next(inner)  # the model itself is called, compiled or not
        return any(module._forward_pre_hooks or module._forward_hooks for module in inner)

    def graph_error(self, block_ids: torch.Tensor, vocabulary: int) -> float | None:
        """How far the engine's compiled graph is from the uncompiled model, relative; None if nothing is compiled.

        The graph checks none of the assumptions with which it was traced, so it is compared before it is used.
        """
        if self._config.compilation_config.mode == CompilationMode.NONE:
            return None
        capacity = len(block_ids) * self._cache.block_tokens
        ranges = [TokenRange(0, capacity // 2), TokenRange(capacity // 2 + 1, capacity)]
        token_ids = np.linspace(1, vocabulary - 1, sum(map(len, ranges))).astype(np.int64)
        plain = self.compute(block_ids, ranges, token_ids).float().clone()
        self.uses_graph = True
        try:
            compiled = self.compute(block_ids, ranges, token_ids).float()
        finally:
            self.uses_graph = False
        return float((compiled - plain).norm() / plain.norm())


def _own_forwards(cache: AttentionCache) -> list[Any]:
    """What replaces the ``forward`` of each attention layer's class."""
    return [vars(layer).get("forward") for layer in cache.layers]


def own_attention_groups(runner: Any, vllm_config: VllmConfig) -> list[AttentionGroup]:
    """The runner's attention groups with metadata builders of our own, made without CUDA graphs.

    The engine builds its step's metadata before it calls the connector. That metadata points into buffers that its
    builders reuse (FlashAttention 3's schedule, FlashInfer's plans): building ours with them would change the schedule
    or plan with which all requests of the step are computed.
    """
    plain = copy.copy(vllm_config)
    plain.compilation_config = copy.copy(vllm_config.compilation_config)
    plain.compilation_config.cudagraph_mode = CUDAGraphMode.NONE
    return [_own_group(theirs, plain, runner.device) for theirs in runner.attn_groups[0]]


def _own_group(theirs: AttentionGroup, vllm_config: VllmConfig, device: torch.device) -> AttentionGroup:
    block = theirs.kv_cache_spec.block_size
    if theirs.kernel_block_size not in (None, block):
        raise KernelBlockError(
            f"the attention kernels use blocks of {theirs.kernel_block_size} tokens and the block table blocks of "
            f"{block}: set --block-size to {theirs.kernel_block_size}"
        )
    ours = AttentionGroup(theirs.backend, theirs.layer_names, theirs.kv_cache_spec, theirs.kv_cache_group_id)
    with set_current_vllm_config(vllm_config):
        ours.create_metadata_builders(vllm_config, device, kernel_block_size=block)
    ours.kernel_block_stride = theirs.kernel_block_stride
    engine_builder: Any = theirs.get_metadata_builder(0)
    own_builder: Any = ours.get_metadata_builder(0)
    if hasattr(engine_builder, "_get_workspace_buffer"):  # FlashInfer's scratch memory is large; passes run in turn
        own_builder.set_workspace_buffer(engine_builder._get_workspace_buffer())
    return ours
