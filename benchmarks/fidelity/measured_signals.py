"""Measures the signals of an item once on the real engine, so that many rules share one pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.fidelity.signals import Array, Signals
from semblend.contract import ReusePlan, Run, TokenRange
from semblend.integration.core.probes import QUERIES, attention_weights, far_layers, observing, queries_of, unseen
from semblend.integration.vllm.open_request import PagedRequest
from semblend.plan.selection import evidence_of

if TYPE_CHECKING:
    from benchmarks.fidelity.items import FidelityItem
    from benchmarks.fidelity.rig import Rig
    from benchmarks.vllm.texts import TokenIds

DIGEST_FRACTION = 0.1
DEVIATION_LAYER = 1
SINKS = 4  # the first tokens of any prompt, to which everything attends


class Measured:
    """Collects signals by prompt position; positions without a value have 0."""

    def __init__(self, layers: int, tokens: int) -> None:
        self.tokens = tokens
        self._shape = (layers, tokens)
        self.found: dict[str, Array] = {}

    def put(self, name: str, layer: int, at: slice, values: torch.Tensor) -> None:
        rows = self.found.setdefault(name, np.zeros(self._shape, np.float32))
        rows[layer, at] = values.float().numpy()


def measure(
    rig: Rig, item: FidelityItem, plan: ReusePlan, texts: Sequence[TokenIds], repeat: TokenIds
) -> tuple[Signals, tuple[torch.Tensor, ...]]:
    """Store the item's donors, load the plan's runs and measure everything. The cold blocks must hold the prompt.

    Also gives the K and V of each run, as a load writes them. Without ``repeat``, the instruction to repeat a donor,
    ``repeat`` and ``digest`` are not measured.
    """
    made = Measured(len(rig.cache.names), plan.claim_end)
    for number in range(len(item.donors)):
        _read_donor(rig, item, number, plan.runs, repeat, made)
        rig.keep(item, number)
    loaded = tuple(rig.loaded(run) for run in plan.runs)
    load(rig, plan, loaded)
    _compare(rig, plan, made)
    ids = np.asarray(item.recipient, np.int64)
    request = PagedRequest(rig.cache, rig.forward, torch.tensor(rig.blocks), ids)
    question = TokenRange(plan.claim_end, len(ids))
    deviation = _deviation(request, TokenRange(plan.exact_prefix_tokens, plan.claim_end))
    load(rig, plan, loaded)
    attention = _ask(request, (*plan.compute, question), made)
    if repeat:
        _ask_digest(request, question, _digest(plan, made), made)
    for text in texts:
        _read_text(rig, item, text, made)
    made.found["read"] /= len(texts)
    plain = evidence_of(plan.runs)
    at = plain.positions
    signals = Signals(
        plain.positions,
        plain.distance,
        plain.context_share,
        attention[..., at],
        deviation=deviation[at],
        layered={name: rows[:, at] for name, rows in made.found.items()},
    )
    return signals, loaded


def load(rig: Rig, plan: ReusePlan, loaded: Sequence[torch.Tensor]) -> None:
    for run, kv in zip(plan.runs, loaded, strict=True):
        rig.write(run, kv)


# -- donors ----------------------------------------------------------------------------------------------------------


def _read_donor(
    rig: Rig, item: FidelityItem, number: int, runs: Sequence[Run], repeat: TokenIds, made: Measured
) -> None:
    """One prefill of the donor and, after it, of its reused text once more: ``repeat`` of its runs."""
    donor = item.donors[number]
    mine = [run for run in runs if run.donor_id == f"{item.name}/{number}"]
    if not mine or not repeat:
        rig.prefill(rig.donor_blocks, np.asarray(donor, np.int64))
        return
    again = tuple(token for run in mine for token in donor[run.donor_start : run.donor_start + run.length])
    ids = np.asarray((*donor, *repeat, *again), np.int64)
    request = PagedRequest(rig.cache, rig.forward, torch.tensor(rig.donor_blocks), ids)
    whole, repeated = TokenRange(0, len(ids)), np.arange(len(ids) - len(again), len(ids))
    hidden = unseen(repeated, len(ids))
    for layer, queries in enumerate(queries_of(request, [whole], repeated)):
        keys, scale = request.read(layer, whole)[0].float(), request.scale(layer)
        mask = hidden(request.reach(layer))
        peak = torch.zeros(len(ids))
        taken = 0
        for run in mine:  # one run after the other: all at once takes hundreds of MB
            part = slice(taken, taken + run.length)
            weights = attention_weights(queries[part], keys, scale, mask[part])
            peak = torch.maximum(peak, weights.amax(dim=(0, 1)))
            taken += run.length
        for run in mine:
            at = slice(run.target_start, run.target_end)
            made.put("repeat", layer, at, peak[run.donor_start : run.donor_start + run.length])


# -- the recipient ---------------------------------------------------------------------------------------------------


def _ask(request: PagedRequest, ranges: Sequence[TokenRange], made: Measured) -> Array:
    """Attention of the last queries [far layers, heads, positions]; ``norm``: root of its mean square over queries."""
    end = ranges[-1].end
    asking = np.arange(end - min(QUERIES, len(ranges[-1])), end)
    queries, hidden = queries_of(request, ranges, asking), unseen(asking, end)
    seen = []
    for layer in far_layers(request):
        keys = request.read(layer, TokenRange(0, end))[0].float()
        weights = attention_weights(queries[layer], keys, request.scale(layer), hidden(request.reach(layer)))
        mean = weights.mean(dim=1)
        claim = slice(0, ranges[-1].start)
        made.put("question", layer, claim, mean.mean(dim=0)[claim])
        made.put("norm", layer, claim, weights.square().mean(dim=(0, 1)).sqrt()[claim])
        seen.append(mean)
    attention: Array = torch.stack(seen).numpy()
    return attention


def _deviation(request: PagedRequest, claim: TokenRange) -> Array:
    """Compute the claim and compare its K and V in layer 1 with the loaded ones, relative to how positions differ."""
    computed: list[list[torch.Tensor]] = [[], []]

    def observe(layer: int, _query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> None:
        if layer == DEVIATION_LAYER:
            computed[0].append(key.clone())
            computed[1].append(value.clone())

    held = [part.float().clone() for part in request.read(DEVIATION_LAYER, claim)]
    with observing(request.layers, observe):
        request.compute([claim])
    total = torch.zeros(len(claim))
    for loaded, true in zip(held, computed, strict=True):
        expected = torch.cat(true).float().reshape(len(claim), -1)
        own = (expected - expected.mean(dim=0)).square().sum(dim=1).mean()
        total += (loaded.reshape(len(claim), -1) - expected).square().sum(dim=1) / own
    off = np.zeros(claim.end, np.float32)
    off[claim.start :] = total.sqrt().numpy()
    return off


def _digest(plan: ReusePlan, made: Measured) -> NDArray[np.int64]:
    """The first tokens and the tenth of the reused ones that a repetition attends to most."""
    score = made.found["repeat"].mean(axis=0)
    count = int(DIGEST_FRACTION * sum(run.length for run in plan.runs))
    return np.union1d(np.arange(SINKS), np.argsort(-score, kind="stable")[:count])


def _ask_digest(request: PagedRequest, question: TokenRange, kept: NDArray[np.int64], made: Measured) -> None:
    """The question computed over the digest alone; its last queries are then compared with all keys."""
    tokens, claim = len(question), TokenRange(0, question.start)
    places = torch.from_numpy(kept)
    inside = torch.ones(tokens, tokens).triu(1).bool()
    later = torch.cat([torch.zeros(tokens, len(kept)).bool(), inside], dim=1)
    asking = slice(tokens - min(QUERIES, tokens), tokens)
    seen_by_all = torch.cat([torch.zeros(tokens, question.start).bool(), inside], dim=1)[asking]

    def attend(layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        keys, values = (part.float() for part in request.read(layer, claim))
        own, held = (part.float().reshape(tokens, *keys.shape[1:]) for part in (key, value))
        asked = query.float().reshape(tokens, -1)
        scale = request.scale(layer)
        over_all = attention_weights(asked[asking], torch.cat([keys, own]), scale, seen_by_all)
        made.put("digest", layer, slice(0, question.start), over_all.mean(dim=(0, 1))[: question.start])
        weights = attention_weights(asked, torch.cat([keys[places], own]), scale, later)
        used = torch.cat([values[places], held]).repeat_interleave(weights.shape[0] // keys.shape[1], dim=1)
        return torch.einsum("hqt,thd->qhd", weights, used).reshape(tokens, -1).to(query.dtype)

    with attending(request.layers, attend):
        request.compute([question])


@contextmanager
def attending(layers: Sequence[Any], attend: Callable[..., torch.Tensor]) -> Iterator[None]:
    """Let ``attend(layer, query, key, value)`` answer for each attention layer, which then neither writes nor reads."""
    with ExitStack() as replaced:
        for index, layer in enumerate(layers):

            def forward(*arguments: Any, at: int = index, **_named: Any) -> torch.Tensor:
                return attend(at, *arguments[:3])

            layer.forward = forward
            replaced.callback(delattr, layer, "forward")
        yield


# -- oracles ---------------------------------------------------------------------------------------------------------


def _read_text(rig: Rig, item: FidelityItem, text: TokenIds, made: Measured) -> None:
    """``read``: what the positions of a text attend to in the cold prompt, added up over texts."""
    ids = np.asarray((*item.recipient, *text), np.int64)
    request = PagedRequest(rig.cache, rig.forward, torch.tensor(rig.cold_blocks), ids)
    part = TokenRange(len(item.recipient), len(ids))
    asking = np.arange(part.start, part.end)
    hidden = unseen(asking, part.end)
    for layer, queries in enumerate(queries_of(request, [part], asking)):
        keys = request.read(layer, TokenRange(0, part.end))[0].float()
        mask = hidden(request.reach(layer))
        weights = attention_weights(queries, keys, request.scale(layer), mask).mean(dim=(0, 1))
        before = made.found["read"][layer] if "read" in made.found else np.float32(0)
        made.put("read", layer, slice(None), weights[: made.tokens] + torch.as_tensor(before))


def _compare(rig: Rig, plan: ReusePlan, made: Measured) -> None:
    """``drift``: distance of the loaded K and V from the cold ones, relative to how much positions differ."""
    ours, cold = (
        PagedRequest(rig.cache, rig.forward, torch.tensor(blocks), np.empty(0, np.int64))
        for blocks in (rig.blocks, rig.cold_blocks)
    )
    claim = TokenRange(0, plan.claim_end)
    for layer in range(len(rig.cache.names)):
        total = torch.zeros(plan.claim_end)
        for held, true in zip(ours.read(layer, claim), cold.read(layer, claim), strict=True):
            expected = true.float().reshape(plan.claim_end, -1)
            own = (expected - expected.mean(dim=0)).square().sum(dim=1).mean()
            total += (held.float().reshape(plan.claim_end, -1) - expected).square().sum(dim=1) / own
        made.put("drift", layer, slice(None), total.sqrt())
