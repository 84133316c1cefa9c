"""Orders are filled by the batch that has their requests, each in its own row; what is not sound is computed whole."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

from semblend.contract import ContextRisk, Event, Run, TokenRange
from semblend.integration.border import Border
from semblend.integration.core.probes import observing
from semblend.integration.sglang import gaps
from semblend.integration.sglang.gaps import FillCommand, GapFiller, Limits
from semblend.integration.sglang.kv_pool import (
    attention_layers,
    latent_dim_of,
    observable,
    read_slots,
    reporting_entries,
)
from semblend.plan.selection import Selection

pytestmark = pytest.mark.models
HEADS, DIM, PROMPT = 2, 8, 80
CLAIM, GAP = TokenRange(0, 60), TokenRange(0, 10)
RUN = Run("d", 3, 10, 50, ContextRisk(10, 5, 0.4))


class Engine:
    """Two requests in a pool of one layer; every pass calls the layer with the rows it was given."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.layer = torch.nn.Module()
        self.layer.layer_id, self.layer.scaling, self.layer.tp_k_head_num = 0, 1.0, HEADS
        self.layer.sliding_window_size = -1
        self.layer.forward = lambda query, key, value: query
        keys = torch.randn(200, HEADS, DIM, generator=torch.Generator().manual_seed(2))
        table = torch.stack([torch.arange(PROMPT), torch.arange(100, 100 + PROMPT)])
        self.runner = SimpleNamespace(
            req_to_token_pool=SimpleNamespace(req_to_token=table),
            token_to_kv_pool=SimpleNamespace(k_buffer=[keys], v_buffer=[keys.clone()]),
        )
        self.rows: list[tuple[int, int, int]] = []
        self.fails = False
        monkeypatch.setattr(gaps, "gap_batch", lambda _runner, _batch, rows: rows)

    def batch(self, *rids: str, ends: tuple[int, ...]) -> Any:
        return SimpleNamespace(rids=list(rids), req_pool_indices=torch.arange(len(rids)), seq_lens_cpu=list(ends))

    def forward(self, rows: Any) -> None:
        self.rows += [(row.batch_row, row.part.start, row.part.end) for row in rows]
        if self.fails:
            raise RuntimeError("injected")
        table, pool = self.runner.req_to_token_pool.req_to_token, self.runner.token_to_kv_pool
        slots = torch.cat([table[row.batch_row, row.part.start : row.part.end] for row in rows])
        keys = pool.k_buffer[0][slots].reshape(len(slots), -1)
        self.layer(keys, keys, keys)


def command(rid: str, selection: Selection | None = None, verified: tuple[int, ...] = ()) -> FillCommand:
    tokens = np.arange(PROMPT, dtype=np.uint32)
    return FillCommand(rid, tokens, (GAP,), CLAIM, 1.0, (RUN,), selection, 10, np.array(verified, np.int64))


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Engine:
    return Engine(monkeypatch)


def filler_of(engine: Engine, events: list[Event] | None = None, rows: int = 4) -> tuple[GapFiller, list[Any]]:
    done: list[Any] = []
    log = logging.getLogger("semblend.tests")
    border = Border((events if events is not None else []).append, log)
    layers = attention_layers(engine.layer, engine.runner.token_to_kv_pool)
    assert layers == [engine.layer]
    return GapFiller(
        border, lambda command, _ms, filled: done.append((command.rid, filled)), layers, Limits(100, rows)
    ), done


def test_each_request_is_filled_in_its_own_row_and_the_others_wait(engine: Engine) -> None:
    filler, done = filler_of(engine)
    for rid in ("a", "b", "later"):
        filler.post(command(rid))
    filler.fill(engine.runner, engine.batch("b", "stranger", ends=(PROMPT, PROMPT)), engine.forward)
    assert engine.rows == [(0, 0, 10)]
    filler.fill(engine.runner, engine.batch("stranger", "a", ends=(PROMPT, PROMPT)), engine.forward)
    assert engine.rows[1:] == [(1, 0, 10)]
    assert [rid for rid, _ in done] == ["b", "a"]
    assert len(filler) == 1


@pytest.mark.parametrize(("end", "policy"), [(PROMPT, "question"), (70, "first"), (PROMPT + 5, "first")])
def test_a_question_is_asked_only_when_the_pass_ends_with_the_prompt(engine: Engine, end: int, policy: str) -> None:
    """70: the engine computes it in chunks. Beyond: the request was sent back and has grown."""
    filler, done = filler_of(engine)
    filler.post(command("a", Selection("question", 0.2)))
    filler.fill(engine.runner, engine.batch("a", ends=(end,)), engine.forward)
    filled = done[0][1]
    assert (filled.policy, filled.recomputed_tokens) == (policy, 10)
    assert ((0, 60, PROMPT) in engine.rows) == (policy == "question")
    in_claim = [at for _, start, stop in engine.rows if stop <= 60 for at in range(start, stop)]
    assert len(in_claim) == len(set(in_claim)) == 20


def test_a_sound_load_passes_the_check_and_a_wrong_one_is_computed_whole(engine: Engine) -> None:
    events: list[Event] = []
    filler, done = filler_of(engine, events)
    filler.post(command("a", verified=(10, 59)))
    filler.fill(engine.runner, engine.batch("a", ends=(PROMPT,)), engine.forward)
    assert done.pop()[1] is not None
    pool = engine.runner.token_to_kv_pool
    pool.v_buffer[0] = pool.v_buffer[0].roll(1, 0)  # the model has other values than the cache
    filler.post(command("a", verified=(10, 59)))
    engine.rows.clear()
    filler.fill(engine.runner, engine.batch("a", ends=(PROMPT,)), engine.forward)
    assert done == [("a", None)]
    assert engine.rows[-1] == (0, 0, 60)
    assert "first-layer V at position" in str(events[-1])


def test_where_a_pass_takes_one_range_each_gap_is_a_pass_and_their_order_is_kept(engine: Engine) -> None:
    filler, done = filler_of(engine, rows=1)
    passes: list[list[tuple[int, int]]] = []

    def forward(rows: Any) -> None:
        passes.append([(row.part.start, row.part.end) for row in rows])

    gaps_of_one = (TokenRange(0, 10), TokenRange(20, 25), TokenRange(40, 41))
    filler.post(FillCommand("a", np.arange(PROMPT, dtype=np.uint32), gaps_of_one, CLAIM, 1.0))
    filler.fill(engine.runner, engine.batch("a", ends=(PROMPT,)), forward)
    assert passes == [[(0, 10)], [(20, 25)], [(40, 41)]]
    assert done[0][1] is not None


def test_a_step_is_full_by_what_waits_and_never_for_one_alone(engine: Engine) -> None:
    filler, _ = filler_of(engine)
    assert filler.has_room(1000)
    filler.post(command("a"))
    assert filler.has_room(90)
    assert not filler.has_room(91)
    filler.withdraw("a")
    assert filler.has_room(91)


def test_layers_that_are_not_one_for_each_of_the_pool_are_not_listened_to(engine: Engine) -> None:
    pool = engine.runner.token_to_kv_pool
    assert attention_layers(torch.nn.Identity(), pool) == []
    assert attention_layers(engine.layer, SimpleNamespace(k_buffer=pool.k_buffer * 2)) == []


LATENT, ROTATED = 6, 2


class LatentPool:
    """As the engine's pool of MLA: one entry per token, written whole or in two parts."""

    def __init__(self) -> None:
        self.kv_lora_rank = LATENT
        self.kv_buffer = [torch.zeros(8, 1, LATENT + ROTATED) for _ in range(2)]

    def set_kv_buffer(self, layer: Any, loc: torch.Tensor, entry: torch.Tensor, _values: Any) -> None:
        self.kv_buffer[layer.layer_id][loc] = entry

    def set_mla_kv_buffer(self, layer: Any, loc: torch.Tensor, latent: torch.Tensor, rotated: torch.Tensor) -> None:
        self.kv_buffer[layer.layer_id][loc] = torch.cat([latent, rotated], dim=-1)


def test_an_entry_of_mla_is_reported_in_two_parts_however_it_is_written() -> None:
    pool = LatentPool()
    modules = [SimpleNamespace(layer_id=layer, scaling=0.5) for layer in range(2)]
    layers = observable(modules, pool)
    seen: list[tuple[int, torch.Tensor, torch.Tensor]] = []

    def observe(layer: int, query: None, latent: torch.Tensor, rotated: torch.Tensor) -> None:
        assert not pool.kv_buffer[layer][3].any(), "it is reported before it is written"
        seen.append((layer, latent, rotated))

    entry, at = torch.randn(1, 1, LATENT + ROTATED), torch.tensor([3])
    with observing(layers, observe):
        pool.set_kv_buffer(modules[0], torch.tensor([5]), entry, None)
        assert seen == []
        with reporting_entries(pool, layers):
            pool.set_kv_buffer(modules[0], at, entry, None)
            pool.set_mla_kv_buffer(modules[1], at, entry[..., :LATENT], entry[..., LATENT:])
    assert [layer for layer, *_ in seen] == [0, 1]
    for layer, latent, rotated in seen:
        keys, values = read_slots(pool, layer, at)
        assert torch.equal(torch.cat([latent, rotated], dim=-1), keys)
        assert torch.equal(keys, entry)
        assert not values.numel()
    assert "set_kv_buffer" not in vars(pool)
    assert "set_mla_kv_buffer" not in vars(pool)
    assert latent_dim_of(pool) == layers[0].kv_lora_rank == LATENT


def test_the_module_of_mla_that_attends_to_the_entries_is_the_layer() -> None:
    """The other one, of the same number, attends to K and V of all heads, which are not kept."""
    model = torch.nn.Module()
    for name, heads, dim in (("attn_mqa", 1, LATENT + ROTATED), ("attn_mha", 4, 5)):
        module = torch.nn.Module()
        vars(module).update(layer_id=0, scaling=1.0, tp_k_head_num=heads, qk_head_dim=dim)
        model.add_module(name, module)
    pool = LatentPool()
    pool.kv_buffer = pool.kv_buffer[:1]
    assert attention_layers(model, pool) == [model.attn_mqa]
