"""Computes chosen positions of one request in one call of the engine's own model; the other positions are in the cache.

Each contiguous group of positions is a virtual sequence on the request's block table whose context ends at its last
position. Every layer writes K and V before it attends, and causality makes one pass equal to the groups in order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from vllm.forward_context import set_forward_context
from vllm.v1.attention.backend import CommonAttentionMetadata

from semblend.contract import TokenRange
from semblend.integration.core.open_request import in_passes
from semblend.integration.vllm.attention_cache import AttentionCache

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from vllm.config import VllmConfig


class SparseForward:
    """Holds the engine's model runner; made by the worker class, used by the worker half between two engine steps."""

    def __init__(self, runner: Any, vllm_config: VllmConfig, cache: AttentionCache, max_tokens: int) -> None:
        self._runner = runner
        self._config = vllm_config
        self._cache = cache
        self.max_tokens = max_tokens

    def compute(
        self, block_ids: torch.Tensor, ranges: Sequence[TokenRange], token_ids: NDArray[np.int64]
    ) -> torch.Tensor:
        """Fill ``ranges`` (in order); ``token_ids`` are the ids at their positions, one after another.

        Gives the model's last hidden state of the last batch's positions.
        """
        taken = 0
        hidden = torch.empty(0)
        for batch in self.passes(ranges):
            count = sum(len(part) for part in batch)
            ids = torch.from_numpy(token_ids[taken : taken + count]).to(torch.int32)
            hidden = self._forward(block_ids, batch, ids)
            taken += count
        if taken != len(token_ids):
            raise ValueError(f"{len(token_ids)} token ids for {taken} positions")
        return hidden

    def passes(self, ranges: Sequence[TokenRange]) -> Iterator[list[TokenRange]]:
        """Consecutive ranges as one forward takes them; what is longer is cut. The order is causal order."""
        return in_passes(ranges, self.max_tokens)

    def _forward(self, block_ids: torch.Tensor, ranges: Sequence[TokenRange], input_ids: torch.Tensor) -> torch.Tensor:
        positions = torch.cat([torch.arange(part.start, part.end) for part in ranges])
        slots = torch.cat([self._cache.slots(block_ids, part.start, part.end) for part in ranges])
        lengths = torch.tensor([len(part) for part in ranges], dtype=torch.int32)
        starts = torch.zeros(len(ranges) + 1, dtype=torch.int32)
        torch.cumsum(lengths, 0, out=starts[1:])
        ends = torch.tensor([part.end for part in ranges], dtype=torch.int32)
        common = CommonAttentionMetadata(
            query_start_loc=starts,
            query_start_loc_cpu=starts,
            seq_lens=ends,
            num_reqs=len(ranges),
            num_actual_tokens=len(positions),
            max_query_len=int(lengths.max()),
            max_seq_len=int(ends.max()),
            block_table_tensor=block_ids.to(torch.int32).repeat(len(ranges), 1),
            slot_mapping=slots,
            positions=positions,
            seq_lens_cpu_upper_bound=ends,
        )
        metadata: dict[str, Any] = {}
        for group in self._runner.attn_groups[0]:
            built = group.build_metadata(common)
            metadata.update(dict.fromkeys(group.layer_names, built))
        slot_mapping = dict.fromkeys(self._cache.names, slots)
        # Never through the engine's compiled graph: it was traced for the runner's own buffers and checks nothing.
        with set_forward_context(
            metadata, self._config, num_tokens=len(positions), slot_mapping=slot_mapping, skip_compiled=True
        ):
            hidden: torch.Tensor = self._runner.get_model()(
                input_ids=input_ids, positions=positions, intermediate_tensors=None, inputs_embeds=None
            )
        return hidden
