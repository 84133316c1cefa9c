"""Rotations are read from rotary modules as vLLM, SGLang and Transformers make them, each layer's from the nearest."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

import torch

from semblend.integration.rotary import RotaryModuleError, candidate_rotations, rotations_of
from semblend.kv.rope import half_split
from semblend.kv.rope_table import RotaryTableError

pytestmark = pytest.mark.models
DIM, POSITIONS = 16, 600


def table(theta: float, scale: float = 1.0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    angles = torch.arange(POSITIONS).float()[:, None] * half_split(theta, DIM).inverse_frequencies
    return (torch.cat([angles.cos(), angles.sin()], dim=-1) * scale).to(dtype)


class Rotary(torch.nn.Module):
    def __init__(self, theta: float, dtype: torch.dtype = torch.float32, neox: bool = True, scale: float = 1.0) -> None:
        super().__init__()
        self.is_neox_style = neox
        self.own = table(theta, scale)
        self.register_buffer("cos_sin_cache", self.own.to(dtype))

    def _compute_cos_sin_cache(self) -> torch.Tensor:
        return self.own


class LongRope(torch.nn.Module):
    """Two tables in one buffer; which one is used was decided when the model was made."""

    def __init__(self, uses_long: bool, dtype: torch.dtype) -> None:
        super().__init__()
        self.use_long_rope, self.original_max_position_embeddings = uses_long, POSITIONS
        self.short_factor, self.long_factor, self.short_mscale, self.long_mscale = 1e4, 1e6, 1.1, 1.2
        both = torch.cat([table(1e4, 1.1, dtype), table(1e6, 1.2, dtype)])
        self.register_buffer("long_short_cos_sin_cache", both)

    def _compute_cos_sin_cache(self, rows: int, theta: float, scale: float) -> torch.Tensor:
        return table(theta, scale)[:rows]


class Frequencies(torch.nn.Module):
    def __init__(self, theta: float) -> None:
        super().__init__()
        self.register_buffer("inv_freq", half_split(theta, DIM).inverse_frequencies)
        self.register_buffer("original_inv_freq", half_split(9.0, DIM).inverse_frequencies)


def layer(rotary: torch.nn.Module | None) -> torch.nn.Module:
    attention = torch.nn.Module()
    attention.attn = torch.nn.Module()
    if rotary is not None:
        attention.rotary_emb = rotary
    outer = torch.nn.Module()
    outer.self_attn = attention
    return outer


def model_of(*rotaries: torch.nn.Module | None, shared: torch.nn.Module | None = None) -> torch.nn.Module:
    model = torch.nn.Module()
    model.layers = torch.nn.ModuleList([layer(rotary) for rotary in rotaries])
    if shared is not None:
        model.rotary_emb = shared
    return model


def names(count: int) -> list[str]:
    return [f"layers.{number}.self_attn.attn" for number in range(count)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("scale", [1.0, 1.2])
def test_each_layer_gets_the_rotation_of_its_own_module(dtype: torch.dtype, scale: float) -> None:
    model = model_of(Rotary(1e4, dtype, scale=scale), Rotary(1e6, dtype, neox=False, scale=scale))
    (first,), (second,) = candidate_rotations(model, names(2))
    assert torch.allclose(first.inverse_frequencies, half_split(1e4, DIM).inverse_frequencies, rtol=1e-6)
    assert torch.allclose(second.inverse_frequencies, half_split(1e6, DIM).inverse_frequencies, rtol=1e-5)
    assert (first.interleaved, second.interleaved) == (False, True)


def test_a_layer_without_a_module_takes_the_models_and_a_model_without_any_has_no_candidates() -> None:
    model = model_of(None, Rotary(1e6), shared=None)
    assert candidate_rotations(model_of(None, None), names(2)) == [(), ()]
    both = candidate_rotations(model_of(None, shared=Frequencies(1e4)), names(1))[0]
    assert [rotation.interleaved for rotation in both] == [False, True]
    assert all(torch.equal(one.inverse_frequencies, half_split(1e4, DIM).inverse_frequencies) for one in both)
    assert len(candidate_rotations(model, names(2))[0]) == 1, "of another layer: measured before it is used"


def test_the_rotated_part_of_a_latent_entry_begins_behind_the_latent_vector() -> None:
    ((rotation,),) = candidate_rotations(model_of(Rotary(1e4, neox=False)), names(1), first_dim=512)
    assert (rotation.first_dim, rotation.interleaved) == (512, True)


@pytest.mark.parametrize(("uses_long", "theta"), [(True, 1e6), (False, 1e4)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_longrope_takes_the_table_in_use(uses_long: bool, theta: float, dtype: torch.dtype) -> None:
    (rotation,) = rotations_of(LongRope(uses_long, dtype))
    assert torch.allclose(rotation.inverse_frequencies, half_split(theta, DIM).inverse_frequencies, rtol=1e-5)


def test_a_table_that_is_not_the_computed_one_is_refused() -> None:
    module = Rotary(1e4, torch.bfloat16)
    module.own = table(2e4)
    with pytest.raises(RotaryModuleError, match="is not the one it computes"):
        rotations_of(module)


def test_a_table_that_is_not_linear_in_the_position_is_refused() -> None:
    module = Rotary(1e4)
    module.cos_sin_cache[POSITIONS // 2 :] = table(2e4)[POSITIONS // 2 :]
    with pytest.raises(RotaryTableError):
        rotations_of(module)


def test_a_module_that_does_not_tell_its_pairing_is_refused() -> None:
    module = Rotary(1e4)
    module.is_neox_style = None  # type: ignore[assignment]
    with pytest.raises(RotaryModuleError, match="pairs"):
        rotations_of(module)
