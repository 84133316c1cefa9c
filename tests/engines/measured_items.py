"""One text of each class, measured on a real server as ``kvmend bench answer-budgets`` does."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

from sembench.http.client import Endpoint, LiveClient
from sembench.live.answer_budgets import BudgetRun, Text, texts_of
from sembench.live.item_trials import ItemTrials, measure_text
from sembench.live.options import LiveOptions
from sembench.live.session import RequestBuilder
from semblend.contract import PlanShape
from semblend.contract.answer_budgets import MIN_RIGHT
from semblend.plan.selection import DEFAULT_POLICY

FRACTIONS: Final = (0.05, 0.2)
QUESTIONS: Final = 2


def require_each_class_measured(base_url: str, model: str, endpoint: Endpoint) -> None:
    rows = asyncio.run(_measured(base_url, model, endpoint))
    shapes = [shape for shape in PlanShape for _ in range(1 if shape is PlanShape.EDIT else QUESTIONS)]
    assert [row.measured_shape for row in rows] == shapes, rows
    for row in rows:
        assert row.policy == DEFAULT_POLICY
        assert [trial.fraction for trial in row.trials] == list(FRACTIONS)
        assert all(trial.ms and trial.right is not None for trial in row.trials)
    assert [row.cold_ms is not None for row in rows] == [True, False, True, True, False, True, False]


async def _measured(base_url: str, model: str, endpoint: Endpoint) -> list[ItemTrials]:
    run = BudgetRun(base_url=base_url, output=Path("unused"), items=MIN_RIGHT, lengths=(2048,), endpoint=endpoint)
    texts: dict[str, Text] = {}
    for text in texts_of(run, 1.5):
        texts.setdefault(text.items[0].transform, text)
    requests = RequestBuilder(LiveOptions(endpoint=endpoint, recipient_max_tokens=4), model, by_tenant=True)
    async with LiveClient(base_url, timeout_s=600, max_connections=1) as client:
        return [
            row
            for text in texts.values()
            for row in await measure_text(text.items[:QUESTIONS], text.up_to_tokens, client, requests, FRACTIONS)
        ]
