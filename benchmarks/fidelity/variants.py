"""Experiments that no deployment can use: what is gained if selected positions are exact, or the others corrected.

Each takes a rig whose cold blocks hold the item's cold KV, a load command and the captures it needs; it leaves the
claim filled. Those on several captures of a passage are in ``benchmarks.fidelity.consensus``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.fidelity.consensus import CONSENSUS, Variant, accounts
from semblend.contract import TokenRange
from semblend.integration.core.probes import attention_of, layer_deviation, question_attention
from semblend.integration.core.selective_fill import fill
from semblend.plan.selection import POLICIES, Probe, as_ranges, choose, evidence_of, joined, with_probes

if TYPE_CHECKING:
    from benchmarks.fidelity.rig import Rig
    from semblend.integration.vllm.commands import LoadCommand

PRIOR_TOKENS = 4.0  # an offset seen on few tokens is believed in part


def exact(rig: Rig, command: LoadCommand) -> dict[str, Any]:
    """Selected positions get cold KV: the remaining KL is due to the others."""
    chosen, seen = _filled(rig, command)
    cold = torch.tensor(rig.cold_blocks)
    slots = _slots(rig, chosen)
    for layer in range(len(rig.cache.names)):
        keys, values = rig.cache.read(layer, cold)
        rig.cache.write(layer, keys[chosen].contiguous(), values[chosen].contiguous(), slots)
    return seen


def again(rig: Rig, command: LoadCommand) -> dict[str, Any]:
    """The gaps after the first selected position once more, now that what they read has changed."""
    computed, seen = _filled(rig, command)
    gaps = _positions(command.compute)
    chosen = np.setdiff1d(computed, gaps)
    ranges = as_ranges(computed[computed >= chosen[0]]) if len(chosen) else ()
    rig.opened(command)[0].compute(ranges)
    return seen


def offset(rig: Rig, command: LoadCommand) -> dict[str, Any]:
    """The mean change at the recomputed positions of a run is applied to its other positions too."""
    blocks, cold = torch.tensor(rig.blocks), torch.tensor(rig.cold_blocks)
    rig.load(replace(command, compute=(), recompute=None))
    layers = range(len(rig.cache.names))
    end = command.end
    loaded = [tuple(part[:end].clone() for part in rig.cache.read(layer, blocks)) for layer in layers]
    filled = fill(*rig.opened(command))
    chosen = _positions(filled.ranges)
    before = after = 0.0
    for layer in layers:
        now = rig.cache.read(layer, blocks)
        true = rig.cache.read(layer, cold)
        for part in (0, 1):
            frame = _frame if part == 0 else _as_is
            old = frame(rig, loaded[layer][part].float(), 1)
            new = frame(rig, now[part][:end].float(), 1)
            want = frame(rig, true[part][:end].float(), 1)
            for run in command.runs:
                here = np.arange(run.target_start, run.target_end)
                known = np.intersect1d(here, chosen)
                rest = np.setdiff1d(here, chosen)
                if not len(known) or not len(rest):
                    continue
                shift = (new[known] - old[known]).sum(dim=0) / (len(known) + PRIOR_TOKENS)
                before += float((want[rest] - old[rest]).square().sum() / want[rest].square().sum())
                after += float((want[rest] - old[rest] - shift).square().sum() / want[rest].square().sum())
                old[rest] += shift
                new[rest] = old[rest]
            now[part][:end] = frame(rig, new, -1).to(rig.cache.dtype)
        here = np.concatenate([np.arange(run.target_start, run.target_end) for run in command.runs])
        rest = np.setdiff1d(here, chosen)
        rig.cache.write(layer, now[0][rest].contiguous(), now[1][rest].contiguous(), _slots(rig, rest))
    seen = {"deviation_before": before, "deviation_after": after}
    return seen | accounts(command, filled.recomputed_tokens, filled.groups)


def _filled(rig: Rig, command: LoadCommand) -> tuple[NDArray[np.int64], dict[str, Any]]:
    rig.load(replace(command, compute=(), recompute=None))
    filled = fill(*rig.opened(command))
    return _positions(filled.ranges), accounts(command, filled.recomputed_tokens, filled.groups)


def _positions(ranges: Sequence[TokenRange]) -> NDArray[np.int64]:
    return np.concatenate([np.empty(0, np.int64), *(np.arange(part.start, part.end) for part in ranges)])


def _slots(rig: Rig, positions: NDArray[np.int64]) -> torch.Tensor:
    at = torch.from_numpy(positions)
    size = rig.cache.block_tokens
    return torch.tensor(rig.blocks)[at // size] * size + at % size


def _as_is(_rig: Rig, rows: torch.Tensor, _direction: int) -> torch.Tensor:
    return rows.clone()


def _frame(rig: Rig, rows: torch.Tensor, direction: int) -> torch.Tensor:
    """Keys [positions, heads, dim] rotated back to position 0 (direction 1), or forward again (-1)."""
    frequencies = rig.rotations[0].inverse_frequencies.double()
    angle = torch.arange(rows.shape[0]).double()[:, None] * frequencies[None] * -direction
    cosine, sine = angle.cos().float()[:, None], angle.sin().float()[:, None]
    half = frequencies.shape[0]
    first, second = rows[..., :half], rows[..., half : 2 * half]
    turned = [first * cosine - second * sine, second * cosine + first * sine, rows[..., 2 * half :]]
    return torch.cat(turned, dim=-1)


def two_hops(rig: Rig, command: LoadCommand) -> dict[str, Any]:
    """Half the budget for what the question attends to, half for what those positions attend to themselves."""
    recompute = command.recompute
    assert recompute is not None
    rig.load(replace(command, compute=(), recompute=None))
    request, whole = rig.opened(command)
    assert whole.question is not None
    asked = question_attention(request, (*command.compute, whole.question))
    plain = evidence_of(command.runs)
    half = replace(recompute.selection, fraction=recompute.selection.fraction / 2)
    first = choose(half, with_probes(plain, asked, None))
    ranges = as_ranges(first)
    weights = asked.mean(axis=(0, 1))[first].astype(np.float64)
    hop = attention_of(request, ranges, first, weights / weights.sum())
    hop = np.pad(hop, ((0, 0), (0, 0), (0, asked.shape[2] - hop.shape[2])))
    scale = asked.mean(axis=(0, 1))[plain.positions].sum() / hop.mean(axis=(0, 1))[plain.positions].sum()
    chosen = choose(recompute.selection, with_probes(plain, asked + hop * scale, None))
    gaps = tuple(gap for gap in command.compute if gap.start > chosen[0])
    ranges = joined(gaps, chosen)
    request.compute(ranges)
    return accounts(command, len(chosen), len(ranges))


def readers(rig: Rig, command: LoadCommand, run_ends: int = 16) -> dict[str, Any]:
    """Attention of all tokens of the question and of the last tokens of every run."""
    recompute = command.recompute
    assert recompute is not None
    rig.load(replace(command, compute=(), recompute=None))
    request, whole = rig.opened(command)
    question = np.arange(command.end, command.end + len(recompute.question_ids))
    ends = np.concatenate([np.arange(run.target_end - run_ends, run.target_end) for run in command.runs])
    ranges = joined((*command.compute, TokenRange(command.end, int(question[-1]) + 1)), ends)
    weights = np.full(len(question) + len(ends), 0.5 / len(question))
    weights[: len(ends)] = 0.5 / max(1, len(ends))
    asking = np.concatenate([ends, question])
    asked = attention_of(request, ranges, asking, weights)
    plain = evidence_of(command.runs)
    off = None
    if Probe.DEVIATION in POLICIES.get(recompute.selection.policy).needs:
        off = layer_deviation(request, whole.claim)
    chosen = choose(recompute.selection, with_probes(plain, asked, off))
    ranges = joined(command.compute, chosen)
    request.compute(ranges)
    # The ends were computed to ask them, and stay: they count besides what was chosen.
    return accounts(command, len(np.union1d(chosen, ends)), len(ranges))


def beyond(rig: Rig, command: LoadCommand, by: float) -> dict[str, Any]:
    """Computed in a context that is still stale, the chosen positions may have moved too little: move them further."""
    blocks = torch.tensor(rig.blocks)
    rig.load(replace(command, compute=(), recompute=None))
    layers = range(len(rig.cache.names))
    before = [tuple(part[: command.end].clone() for part in rig.cache.read(layer, blocks)) for layer in layers]
    filled = fill(*rig.opened(command))
    here = np.concatenate([np.arange(run.target_start, run.target_end) for run in command.runs])
    chosen = np.intersect1d(here, _positions(filled.ranges))
    for layer in layers:
        now = [part[chosen].float() for part in rig.cache.read(layer, blocks)]
        old = [part[chosen].float() for part in before[layer]]
        keys, values = (
            (new + by * (new - stale)).to(rig.cache.dtype).contiguous() for new, stale in zip(now, old, strict=True)
        )
        rig.cache.write(layer, keys, values, _slots(rig, chosen))
    return accounts(command, filled.recomputed_tokens, filled.groups)


def _alone(fill: Callable[[Rig, LoadCommand], dict[str, Any]]) -> Variant:
    return Variant(lambda rig, command, _captured: fill(rig, command))


VARIANTS: dict[str, Variant] = {
    "exact": _alone(exact),
    "again": _alone(again),
    "offset": _alone(offset),
    "hops": _alone(two_hops),
    "readers": _alone(readers),
    "queries": _alone(partial(readers, run_ends=0)),
    **{f"beyond{percent}": _alone(partial(beyond, by=percent / 100)) for percent in (25, 50, 100)},
    **CONSENSUS,
}
