"""What each layer of a model is given: windows keep every token, unless that would not make the layers alike."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.engines.vllm_inside.engine import FullAttentionSpec, MambaSpec, SlidingWindowSpec

from semblend.integration.vllm.cache_specs import keep_every_token

pytestmark = pytest.mark.engine
SHAPE = {"block_size": 16, "num_kv_heads": 2, "head_size": 32, "dtype": torch.float32}


def full(**changes: Any) -> Any:
    return FullAttentionSpec(**{**SHAPE, **changes})


def windowed(window: int = 64) -> Any:
    return SlidingWindowSpec(sliding_window=window, **SHAPE)


def recurrent() -> Any:
    return MambaSpec(block_size=16, shapes=((4, 4),), dtypes=(torch.float32,))


@pytest.mark.parametrize("others", [[], [full()]])
def test_windows_keep_every_token_and_are_remembered(others: list[Any]) -> None:
    given = {str(at): spec for at, spec in enumerate([windowed(), windowed(), *others])}
    kept = keep_every_token(given)
    assert list(kept) == list(given)
    assert list(kept.values()) == [full(sliding_window=64), full(sliding_window=64), *others]


@pytest.mark.parametrize(
    "specs",
    [
        [full(), full()],
        [windowed(), full(), recurrent()],
        [recurrent()],
        [windowed(), full(head_size=64)],
        [windowed(32), windowed(64), full()],
        [],
    ],
)
def test_what_cannot_be_made_alike_stays_as_the_engine_has_it(specs: list[Any]) -> None:
    given = {str(at): spec for at, spec in enumerate(specs)}
    assert keep_every_token(given) == given
