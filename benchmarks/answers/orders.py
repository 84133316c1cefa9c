"""How far a model's answers depend on the order of its passages without any reuse, beside what reuse changed.

``python -m benchmarks.answers.orders NAME`` reads the rows of ``benchmarks.answers.budgets --name NAME`` and asks a
vLLM server without the connector every question about reordered passages again, in the order that their donors had.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from scripts.engines.specs import EngineOptions, native_dtype, vllm_missing, vllm_spec
from scripts.models.known import MODELS, SMOLLM2

from benchmarks.console import RESULTS, progress
from benchmarks.equal_threads import launch
from sembench.http.client import LiveClient
from sembench.live.answer_budgets import ITEMS, BudgetRun, Text, texts_of, tokens_per_word
from sembench.live.item_trials import ItemTrials, marked, trials_from_json
from sembench.live.options import LiveOptions
from sembench.live.session import RequestBuilder
from sembench.manifest import WorkloadItem
from semblend.contract import PlanShape


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.answers.orders", description=__doc__)
    parser.add_argument("name", help="of the run with benchmarks.answers.budgets")
    parser.add_argument(
        "--model", choices=list(MODELS), default=SMOLLM2.name, help="of that run (default: %(default)s)"
    )
    parser.add_argument("--length", type=int, default=4096, help="of that run (default: %(default)s)")
    parser.add_argument("--items", type=int, default=ITEMS, help="of that run (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of that run (default: %(default)s)")
    arguments = parser.parse_args()
    model = MODELS[arguments.model]
    if (missing := vllm_missing(model)) is not None:
        progress(f"nothing measured: {missing}")
        return 3
    rows = read_rows(RESULTS / f"budgets-{arguments.name}" / "rows.jsonl")
    options = EngineOptions(
        model=model,
        extra=("--enable-prompt-tokens-details", "--max-model-len", str(2 * arguments.length)),
        kv_cache_gib=1,
        cores="0-1",
        dtype=native_dtype(),
    )
    with launch(vllm_spec(options)) as server:
        run = BudgetRun(
            base_url=server.base_url,
            output=Path("unused"),
            classes=(PlanShape.REORDER,),
            items=arguments.items,
            lengths=(arguments.length,),
            seed=arguments.seed,
        )
        right = asyncio.run(right_in_donor_order(run, rows))
    progress(report(rows, right))
    return 0


def read_rows(path: Path) -> dict[str, ItemTrials]:
    """The complete rows of reordered passages, by item."""
    rows = [trials_from_json(json.loads(line), str(path)) for line in path.read_text(encoding="utf-8").splitlines()]
    return {row.item_id: row for row in rows if row.measured_shape is PlanShape.REORDER}


async def right_in_donor_order(run: BudgetRun, rows: dict[str, ItemTrials]) -> dict[str, bool]:
    found: dict[str, bool] = {}
    async with LiveClient(run.base_url, timeout_s=900.0, max_connections=1) as client:
        model = await client.wait_ready(60.0)
        requests = RequestBuilder(LiveOptions(endpoint="completions", recipient_max_tokens=8), model, by_tenant=True)
        for text in texts_of(run, await tokens_per_word(client, requests)):
            tenant = requests.recipient(text.items[0], "cold").tenant  # of one text: its passages are computed once
            for item in in_donor_order(text):
                reply = await client.ask(replace(requests.recipient(item, "cold"), tenant=tenant, stream=False))
                mark = marked(reply, item)
                if mark is not None and item.item_id in rows:
                    found[item.item_id] = bool(mark.right)
            progress(f"{len(found)} of {len(rows)} questions")
    return found


def in_donor_order(text: Text) -> list[WorkloadItem]:
    """The donor's document, and the recipient's question."""
    (donor,) = text.items[0].donor_prompts
    document, _, _ = donor.text.rpartition("\n\nRequest: ")
    questions = [item.recipient_prompt.rpartition("\n\nRequest: ")[2] for item in text.items]
    return [
        replace(item, recipient_prompt=f"{document}\n\nRequest: {question}")
        for item, question in zip(text.items, questions, strict=True)
    ]


def report(rows: dict[str, ItemTrials], in_other_order: dict[str, bool]) -> str:
    both = [(row, in_other_order[name]) for name, row in rows.items() if name in in_other_order]
    right, other_right = count(row.cold_right for row, _ in both), count(other for _, other in both)
    lost = count(row.cold_right and not other for row, other in both)
    gained = count(other and not row.cold_right for row, other in both)
    lines = [
        f"without reuse: of {len(both)} questions {right} right, in the donor's order {other_right}: "
        f"that order loses {lost} and gains {gained}"
    ]
    for number, trial in enumerate(both[0][0].trials if both else ()):
        losses = [other for row, other in both if row.is_lost(row.trials[number])]
        gains = [other for row, other in both if row.is_gained(row.trials[number])]
        lines.append(
            f"{trial.fraction:g} recomputed: {len(losses)} lost, {losses.count(False)} of them in that order too; "
            f"{len(gains)} gained, {gains.count(True)} of them in that order too"
        )
    return "\n".join(lines)


def count(values: Iterable[object]) -> int:
    return sum(map(bool, values))


if __name__ == "__main__":
    raise SystemExit(main())
