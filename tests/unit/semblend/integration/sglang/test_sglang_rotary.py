"""SGLang's rotary modules: rows beyond what is served, two tables of longrope, modules that all layers share."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")

import torch

from semblend.integration.rotary import RotaryModuleError, candidate_rotations, rotations_of
from semblend.kv.rope import Rotation, half_split
from semblend.kv.rope_table import RotaryTableError

pytestmark = pytest.mark.models
DIM, SERVED = 16, 64
PLAIN = half_split(1e4, DIM)


def table(frequencies: torch.Tensor, rows: int, first: int = 0) -> torch.Tensor:
    angles = torch.arange(first, first + rows).float()[:, None] * frequencies
    return torch.cat([angles.cos(), angles.sin()], dim=-1)


class Rotary(torch.nn.Module):
    def __init__(self, stored: torch.Tensor, computed: torch.Tensor | None = None, *, neox: bool = True) -> None:
        super().__init__()
        self.register_buffer("cos_sin_cache", stored)
        self.is_neox_style = neox
        self._computed = computed

    def _compute_cos_sin_cache(self) -> torch.Tensor:
        assert self._computed is not None
        return self._computed


class LongRope(torch.nn.Module):
    """Both tables of longrope; vLLM's has ``use_long_rope``, SGLang's does not."""

    def __init__(self, short: torch.Tensor, long: torch.Tensor) -> None:
        super().__init__()
        self.register_buffer("long_short_cos_sin_cache", torch.cat([table(short, 32), table(long, SERVED)]))
        self.original_max_position_embeddings = 32


def same(found: Rotation, expected: Rotation) -> bool:
    close = torch.allclose(found.inverse_frequencies, expected.inverse_frequencies, rtol=1e-6)
    return close and (found.interleaved, found.first_dim) == (expected.interleaved, expected.first_dim)


def test_rows_beyond_the_served_positions_may_follow_another_rule() -> None:
    """SGLang extends a scaled table by unscaled rows."""
    scaled = PLAIN.inverse_frequencies / 4
    extended = Rotary(torch.cat([table(scaled, SERVED), table(PLAIN.inverse_frequencies, 64, SERVED)]))
    (found,) = rotations_of(extended, positions=SERVED)
    assert same(found, Rotation(scaled))
    with pytest.raises(RotaryTableError, match="proportion"):
        rotations_of(extended)


def test_a_table_kept_in_bf16_is_read_as_it_is_computed_also_when_rows_were_added() -> None:
    exact = table(PLAIN.inverse_frequencies, SERVED)
    added = torch.cat([exact, table(PLAIN.inverse_frequencies, 64, SERVED)]).bfloat16()
    (found,) = rotations_of(Rotary(added, exact, neox=False), positions=SERVED)
    assert same(found, Rotation(PLAIN.inverse_frequencies, interleaved=True))
    with pytest.raises(RotaryModuleError, match="not the one it computes"):
        rotations_of(Rotary(added, table(PLAIN.inverse_frequencies / 2, SERVED)), positions=SERVED)


def test_longrope_has_one_candidate_where_the_engine_chose_and_two_where_each_batch_chooses() -> None:
    short, long = PLAIN.inverse_frequencies, PLAIN.inverse_frequencies / 8
    module = LongRope(short, long)
    found = rotations_of(module, positions=SERVED)
    assert [same(one, Rotation(own)) for one, own in zip(found, (short, long), strict=True)] == [True, True]
    module.use_long_rope = True
    (chosen,) = rotations_of(module, positions=SERVED)
    assert same(chosen, Rotation(long))


def test_a_layers_own_module_comes_first_then_those_it_shares_and_never_another_layers() -> None:
    thetas, shared = (1e4, 1e6), 1e5
    model: Any = torch.nn.Module()
    model.layers = torch.nn.ModuleList()
    for theta in thetas:
        block: Any = torch.nn.Module()
        block.attn = torch.nn.Identity()
        block.rotary_emb = Rotary(table(half_split(theta, DIM).inverse_frequencies, SERVED))
        model.layers.append(block)
    model.rotary_emb = Rotary(table(half_split(shared, DIM).inverse_frequencies, SERVED))
    model.again = Rotary(table(half_split(shared, DIM).inverse_frequencies * (1 + 1e-7), SERVED))
    found = candidate_rotations(model, ["layers.0.attn", "layers.1.attn"], positions=SERVED)
    for candidates, theta in zip(found, thetas, strict=True):
        expected = (half_split(theta, DIM), half_split(shared, DIM))
        assert [same(one, own) for one, own in zip(candidates, expected, strict=True)] == [True, True]
