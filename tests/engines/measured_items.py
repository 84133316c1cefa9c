"""One item of each class, measured on a real server as ``kvmend bench answer-budgets`` does."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

from sembench.http.client import Endpoint, LiveClient
from sembench.live.answer_budgets import BudgetRun, items_of
from sembench.live.item_trials import ItemTrials, measure_item
from sembench.live.options import LiveOptions
from sembench.live.session import RequestBuilder
from sembench.manifest import WorkloadItem
from semblend.contract import PlanShape
from semblend.contract.answer_budgets import MIN_ANSWERABLE
from semblend.plan.selection import DEFAULT_POLICY

FRACTIONS: Final = (0.05, 0.2)


def require_each_class_measured(base_url: str, model: str, endpoint: Endpoint) -> None:
    rows = asyncio.run(_measured(base_url, model, endpoint))
    assert [row.measured_shape for row in rows] == list(PlanShape), rows
    for row in rows:
        assert row.policy == DEFAULT_POLICY
        assert [trial.fraction for trial in row.trials] == list(FRACTIONS)
        assert all(trial.ms and trial.right is not None for trial in row.trials)
        assert row.cold_ms


async def _measured(base_url: str, model: str, endpoint: Endpoint) -> list[ItemTrials]:
    run = BudgetRun(base_url=base_url, output=Path("unused"), items=MIN_ANSWERABLE, lengths=(2048,), endpoint=endpoint)
    first: dict[str, tuple[WorkloadItem, int]] = {}
    for item, covered in items_of(run, tokens_per_word=1.5):
        first.setdefault(item.transform, (item, covered))
    requests = RequestBuilder(LiveOptions(endpoint=endpoint, recipient_max_tokens=4), model, by_tenant=True)
    async with LiveClient(base_url, timeout_s=600, max_connections=1) as client:
        return [await measure_item(*each, client, requests, FRACTIONS) for each in first.values()]
