"""What a question attends to, against the definition; listening leaves no hook behind."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

import torch

from semblend.integration.core.probes import observing, weighted_attention

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
