"""Gaps between loaded runs, and recomputed tokens, computed by the engine's model just before the pass that needs them.

Each range is a row of one extra forward pass on the request's own table of slots, whose context ends at its last
position. Every layer writes K and V before it attends, so one pass equals the ranges in their order. The engine's batch
is not touched: sampling, log-probabilities and grammars work unchanged.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from semblend.contract import Run, TokenRange
from semblend.integration.core.load_check import find_mismatch
from semblend.integration.core.open_request import in_passes
from semblend.integration.core.rank_group import ALONE
from semblend.integration.core.selective_fill import Fill, Filled, fill
from semblend.integration.sglang.kv_pool import read_slots, reporting_entries

if TYPE_CHECKING:
    from semblend.integration.border import Border
    from semblend.plan.selection import Selection

Forward = Callable[[Any], Any]


@dataclasses.dataclass(frozen=True, slots=True)
class Limits:
    """Of one forward pass."""

    tokens: int
    rows: int


class PooledRequest:
    """``compute_pass`` runs one forward pass over ranges of this request, each a row with its prefix as context."""

    def __init__(
        self,
        layers: Sequence[Any],
        pool: Any,
        slots: torch.Tensor,
        limits: Limits,
        compute_pass: Callable[[Sequence[TokenRange]], Any],
    ) -> None:
        self.layers = layers
        self._pool = pool
        self._slots = slots
        self._limits = limits
        self._compute_pass = compute_pass
        self.ranks = ALONE

    def passes(self, ranges: Sequence[TokenRange]) -> Iterator[list[TokenRange]]:
        return in_passes(ranges, self._limits.tokens, self._limits.rows)

    def scale(self, layer: int) -> float:
        return float(self.layers[layer].scaling)

    def reach(self, layer: int) -> int | None:
        tokens: int = self.layers[layer].sliding_window_size
        return None if tokens < 0 else tokens

    def read(self, layer: int, part: TokenRange) -> tuple[torch.Tensor, torch.Tensor]:
        return read_slots(self._pool, layer, self._slots[part.start : part.end].long())

    def compute(self, ranges: Sequence[TokenRange]) -> None:
        for portion in self.passes(ranges):
            self._compute_pass(portion)


class BrokenLoadError(Exception):
    """The loaded KV differs from what the model computes."""


@dataclasses.dataclass(frozen=True, slots=True)
class FillCommand:
    """``ranges`` of a request to compute, and by ``selection`` some tokens of its ``runs`` to recompute.

    If that fails, everything ``claimed`` is computed and nothing reused. ``verified`` are the verification positions.
    """

    rid: str
    tokens: NDArray[np.uint32]
    ranges: tuple[TokenRange, ...]
    claimed: TokenRange
    load_ms: float
    runs: tuple[Run, ...] = ()
    selection: Selection | None = None
    tokens_due: int = 0  # the tokens it adds to the step
    verified: NDArray[np.int64] = dataclasses.field(default_factory=lambda: np.empty(0, np.int64))


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """One range of a request in the extra pass."""

    batch_row: int
    command: FillCommand
    part: TokenRange


Done = Callable[[FillCommand, float, "Filled | None"], None]


class GapFiller:
    """Commands between admission and the pass that fills them. ``done`` receives each with its time and what was
    computed; None when that was the whole claim, because the load could not be kept."""

    def __init__(self, border: Border, done: Done, layers: Sequence[Any], limits: Limits) -> None:
        self._border = border
        self._done = done
        self._layers = layers
        self._limits = limits
        self._commands: dict[str, FillCommand] = {}

    def __len__(self) -> int:
        return len(self._commands)

    def has_room(self, tokens: int) -> bool:
        """Whether this many more tokens fit before the next step; a single request always fits."""
        waiting = sum(command.tokens_due for command in self._commands.values())
        return not waiting or waiting + tokens <= self._limits.tokens

    def post(self, command: FillCommand) -> None:
        self._commands[command.rid] = command

    def withdraw(self, rid: str) -> None:
        self._commands.pop(rid, None)

    def clear(self) -> None:
        self._commands.clear()

    def fill(self, runner: Any, batch: Any, forward: Forward) -> list[FillCommand]:
        """Compute the gaps of the requests in this batch. Raises if not even the whole claim can be computed."""
        if not self._commands:
            return []
        if not batch.rids:
            raise RuntimeError("the engine's batch names no requests: loaded KV would be read with gaps in it")
        due = [(row, self._commands.pop(rid)) for row, rid in enumerate(batch.rids) if rid in self._commands]
        for batch_row, command in due:
            self._fill_one(
                self._opened(runner, batch, forward, batch_row, command), command, _question(batch, batch_row, command)
            )
        return [command for _, command in due]

    def _opened(self, runner: Any, batch: Any, forward: Forward, batch_row: int, command: FillCommand) -> PooledRequest:
        def compute_pass(parts: Sequence[TokenRange]) -> None:
            with reporting_entries(runner.token_to_kv_pool, self._layers):
                forward(gap_batch(runner, batch, [Row(batch_row, command, part) for part in parts]))

        slots = runner.req_to_token_pool.req_to_token[batch.req_pool_indices[batch_row]]
        return PooledRequest(self._layers, runner.token_to_kv_pool, slots, self._limits, compute_pass)

    def _fill_one(self, request: PooledRequest, command: FillCommand, question: TokenRange | None) -> None:
        started = time.perf_counter()
        filled = self._border.call("holes", command.rid, partial(_served, request, command, question), None)
        if filled is None:
            request.compute((command.claimed,))
        self._done(command, (time.perf_counter() - started) * 1e3, filled)


def _served(request: PooledRequest, command: FillCommand, question: TokenRange | None) -> Filled:
    if len(command.verified) and (found := find_mismatch(request, command.verified)) is not None:
        raise BrokenLoadError(found)
    if command.selection is not None:
        return fill(request, Fill(command.runs, command.ranges, question, command.selection))
    request.compute(command.ranges)
    return Filled(None, 0, command.ranges, 0.0)


def _question(batch: Any, batch_row: int, command: FillCommand) -> TokenRange | None:
    """The prompt after the claim, if the engine's pass reaches its end: only then does all of it have slots."""
    end = int(batch.seq_lens_cpu[batch_row])
    return TokenRange(command.claimed.end, end) if end == len(command.tokens) > command.claimed.end else None


def gap_batch(runner: Any, batch: Any, rows: Sequence[Row]) -> Any:
    """The engine's batch with these rows instead of its own, without anything for sampling."""
    device = batch.input_ids.device
    own = batch.req_pool_indices[torch.tensor([row.batch_row for row in rows], device=device)]
    starts = [row.part.start for row in rows]
    lengths = [len(row.part) for row in rows]
    ends = [row.part.end for row in rows]
    tokens = np.concatenate([row.command.tokens[row.part.start : row.part.end] for row in rows]).astype(np.int64)
    table = runner.req_to_token_pool.req_to_token
    slots = torch.cat([table[pool_row, row.part.start : row.part.end] for pool_row, row in zip(own, rows, strict=True)])
    positions = torch.cat([torch.arange(row.part.start, row.part.end, device=device) for row in rows])
    seq_lens = torch.tensor(ends, dtype=batch.seq_lens.dtype)
    extend_lens = torch.tensor(lengths, dtype=batch.extend_seq_lens.dtype)
    made = dataclasses.replace(
        batch,
        batch_size=len(rows),
        input_ids=torch.from_numpy(tokens).to(batch.input_ids),
        req_pool_indices=own,
        req_pool_indices_cpu=own.cpu(),
        seq_lens=seq_lens.to(device),
        seq_lens_cpu=seq_lens,
        orig_seq_lens=None if batch.orig_seq_lens is None else seq_lens.to(batch.orig_seq_lens),
        seq_lens_sum=sum(ends),
        out_cache_loc=slots.to(batch.out_cache_loc),
        positions=positions.to(batch.positions),
        extend_num_tokens=len(tokens),
        extend_seq_lens=extend_lens.to(device),
        extend_seq_lens_cpu=lengths,
        extend_prefix_lens=torch.tensor(starts, dtype=batch.extend_prefix_lens.dtype, device=device),
        extend_prefix_lens_cpu=starts,
        extend_start_loc=(torch.cumsum(extend_lens, 0) - extend_lens).to(batch.extend_start_loc),
        extend_logprob_start_lens_cpu=lengths,
        return_logprob=False,
        top_logprobs_nums=[0] * len(rows),
        token_ids_logprobs=[None] * len(rows),
        extend_input_logprob_token_ids_gpu=None,
        mm_inputs=None if batch.mm_inputs is None else [None] * len(rows),
        lora_ids=None if batch.lora_ids is None else [None] * len(rows),
        rids=[row.command.rid for row in rows],
        rids_int=None,
        global_num_token_non_padded_cpu=len(tokens),
        forward_metadata_ready=False,
    )
    runner.kv_index_translator.own_plan(made).bind(made, runner.kv_index_translator)
    return made
