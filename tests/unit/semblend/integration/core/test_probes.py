"""What a question attends to, against the definition; listening leaves no hook behind."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")

import torch

from semblend.contract import TokenRange
from semblend.integration.core.probes import layer_deviation, observing, weighted_attention
from semblend.integration.core.rank_group import ALONE

pytestmark = pytest.mark.models


def test_weighted_attention_is_the_definition_head_by_head() -> None:
    random = torch.Generator().manual_seed(1)
    queries, keys = torch.randn(5, 9 * 8, generator=random), torch.randn(20, 3, 8, generator=random)
    weights, asking = torch.rand(5, generator=random), torch.arange(15, 20)
    later = torch.arange(20)[None] > asking[:, None]
    expected = torch.zeros(9, 20)
    for head in range(9):
        for row in range(5):
            scores = keys[: asking[row] + 1, head // 3] @ queries[row].view(9, 8)[head] * 0.3
            expected[head, : asking[row] + 1] += weights[row] * scores.softmax(dim=0)
    assert torch.allclose(weighted_attention(queries, keys, 0.3, later, weights), expected, atol=1e-6)


def test_listening_hears_every_layer_and_stops() -> None:
    seen_rows: list[int] = []

    modules = [torch.nn.Module() for _ in range(3)]
    for module in modules:
        module.forward = lambda query, key, value: query + key + value
    one = torch.ones(1)
    with observing(modules, lambda at, *_: seen_rows.append(at)):
        for module in modules:
            module(one, one, one)
    modules[0](one, one, one)
    assert seen_rows == [0, 1, 2]


def test_layers_whose_forward_is_called_directly_are_observed_and_restored() -> None:
    class Attention(torch.nn.Module):
        def forward(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
            return query + key + value

    layer = Attention()
    seen: list[int] = []
    one = torch.ones(1)
    with observing([layer], lambda at, *_: seen.append(at)):
        assert float(layer.forward(one, one, one)) == 3.0
        assert float(layer(one, one, one)) == 3.0
    assert seen == [0, 0]
    assert "forward" not in vars(layer)


def test_listening_stops_when_the_forward_breaks_off() -> None:
    module = torch.nn.Identity()
    seen_rows: list[int] = []
    with pytest.raises(RuntimeError, match="enough"), observing([module], lambda at, *_: seen_rows.append(at)):
        raise RuntimeError("enough")
    module(torch.ones(1))
    assert seen_rows == []


class Biased:
    """Two layers whose keys carry a bias 50 times their own part; position 7 was loaded from another text."""

    ranks = ALONE

    def __init__(self, key_bias: float) -> None:
        random = torch.Generator().manual_seed(2)
        self.layers = [torch.nn.Identity(), torch.nn.Identity()]
        for layer in self.layers:
            layer.forward = lambda query, key, value: query
        self.keys = torch.randn(16, 1, 8, generator=random) + key_bias * 8**0.5 * torch.eye(8)[7]
        self.values = torch.ones(16, 1, 8)

    def read(self, _layer: int, part: TokenRange) -> tuple[torch.Tensor, torch.Tensor]:
        held = self.keys.clone()
        held[7] = self.keys[3]
        return held[part.start : part.end], self.values[part.start : part.end]

    def passes(self, ranges: list[TokenRange]) -> list[list[TokenRange]]:
        return [ranges]

    def compute(self, ranges: list[TokenRange]) -> None:
        for layer in self.layers:
            layer(*(part[ranges[0].start : ranges[0].end] for part in (self.keys, self.keys, self.values)))


@pytest.mark.parametrize("key_bias", [0.0, 50.0])
def test_a_key_bias_does_not_shrink_deviation(key_bias: float) -> None:
    request: Any = Biased(key_bias)
    off = layer_deviation(request, TokenRange(0, 16))
    assert off[7] > 0.5
    assert off[[at for at in range(16) if at != 7]].max() == 0.0
