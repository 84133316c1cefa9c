"""What donor memory holds: the figures the documentation states."""

from __future__ import annotations

from pathlib import Path

import pytest
from scripts.sizing_page import GIB, MODELS, KvShape, kv_bytes_per_token, reference_table, tokens_held

from semblend.integration.vllm.options import ConnectorOptions
from semestimate.hardware import MODELS as PRICED

BY_NAME = {shape.name: shape for shape in MODELS}


def test_the_default_holds_16384_tokens_of_an_8b_model() -> None:
    default = ConnectorOptions().host_bytes
    assert default == 2 * GIB
    assert tokens_held(default, BY_NAME["Llama-3.1-8B"]) == 16_384
    page = (Path(__file__).parents[3] / "docs" / "operate" / "sizing.md").read_text(encoding="utf-8")
    assert "2 GiB holds 16,384 tokens of an 8B model" in page


@pytest.mark.parametrize("priced", PRICED, ids=lambda model: model.name)
def test_the_estimate_prices_the_same_bytes(priced: object) -> None:
    name, kv_bytes = priced.name, priced.kv_bytes  # type: ignore[attr-defined]
    assert kv_bytes_per_token(BY_NAME.get(name) or BY_NAME[f"{name} (MLA)"]) == kv_bytes


def test_fp8_halves_and_latents_replace_heads() -> None:
    plain = KvShape("plain", 2, 4, 8)
    assert kv_bytes_per_token(plain) == 2 * 2 * 4 * 8 * 2
    assert kv_bytes_per_token(plain, 1) * 2 == kv_bytes_per_token(plain)
    assert kv_bytes_per_token(KvShape("latent", 2, 0, 0, latent=10)) == 40


def test_the_table_has_a_row_per_model() -> None:
    lines = reference_table().splitlines()
    assert len(lines) == len(MODELS) + 2
    assert len({line.count("|") for line in lines}) == 1
