"""The measured curve on a model of a few kilobytes: exact at layer 0, off above it, and refusals by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers")

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from sembase.errors import ConfigurationError
from semblend.integration import depth
from semblend.plan.deviation_curve import Provenance

pytestmark = pytest.mark.models
PASSAGES = [f"passage {number} " * 12 for number in range(8)]


def spelled(text: str, **_: Any) -> dict[str, list[int]]:
    return {"input_ids": [ord(letter) for letter in text]}


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(1)
    config = LlamaConfig(
        vocab_size=128,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        initializer_range=0.3,
    )
    model = LlamaForCausalLM(config).eval()
    monkeypatch.setattr(depth, "_opened", lambda _folder: (spelled, model))


@pytest.mark.usefixtures("tiny")
def test_layer_0_is_exact_once_rotated_and_the_others_are_not() -> None:
    curve = depth.measured_curve(Path("models/tiny"), PASSAGES, 2)
    assert (curve.model, curve.layers, curve.provenance) == ("tiny", 3, Provenance.MEASURED)
    assert curve.deviation[0] < 1e-4
    assert all(value > 0.01 for value in curve.deviation[1:])
    assert 0.0 <= curve.noise_floor < 1e-4


@pytest.mark.usefixtures("tiny")
def test_too_little_text_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="12"):
        depth.measured_curve(Path("models/tiny"), PASSAGES, 3)


def test_a_folder_without_a_model_is_refused_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="transformers cannot open this model"):
        depth.measured_curve(tmp_path, PASSAGES, 1)
