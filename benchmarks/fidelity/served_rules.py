"""Selection policies on a real server, side by side: KL of answers, time to the first token, what was reused.

``python -m benchmarks.fidelity.served_rules [POLICY ...]``. One vLLM server per policy, one after the other, with the
same items: passages reordered, or composed out of several prompts, as ``kvmend calibrate`` makes them. Rows are
appended as they come; a run of the same name leaves out what it has, and ``--report`` shows it.
"""

from __future__ import annotations

import argparse
import json
import secrets
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from scripts.engines.specs import EngineOptions, native_dtype, semblend_flags, vllm_spec

from benchmarks.console import progress, show_table
from benchmarks.documents import DEFAULT_TEXTS, ROOT, read_documents
from benchmarks.equal_threads import launch
from benchmarks.fidelity.figures import Row, mean_interval, read_rows
from semblend.calibrate.engine import Engine
from semblend.calibrate.prompts import CalibrationItem, items_of, passages_of, prompt_words
from semblend.contract import PlanShape
from semblend.guard.pair import ANSWER_TOKENS, KEY, TOP, answer_of, divergence
from semblend.plan.selection import needs_leaning

FOLDER = ROOT / ".cache" / "fidelity"
POLICIES = ("question_or_deviation", "near_question_or_leaning")
FRACTIONS = (0.05, 0.15)
CASES = (PlanShape.REORDER, PlanShape.COMPOSITION)
# Gates open, so that every item is blended; nothing else is computed while the engine is idle.
OPTIONS = {
    "max_context_share": 1.0,
    "min_inexact_tokens": 0,
    "refresh_on_repeat": False,
    "prefill_passages": False,
    "repair": "off",
    "host_bytes": 512 << 20,
}
PROMPT_TOKENS, TOKENS_PER_WORD = 750, 1.4
ATTEMPTS = 30  # a donor is stored, and measured, a moment after its answer


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fidelity.served_rules", description=__doc__)
    parser.add_argument("policies", nargs="*", default=POLICIES, help=f"(default: {' '.join(POLICIES)})")
    parser.add_argument("--fractions", nargs="+", type=float, default=FRACTIONS)
    parser.add_argument("--most", type=int, default=8, help="items per case")
    parser.add_argument("--name", default="served-rules", help="rows are kept in .cache/fidelity/NAME.jsonl")
    parser.add_argument("--report", action="store_true", help="show the rows of that name without measuring")
    arguments = parser.parse_args()
    path = FOLDER / f"{arguments.name}.jsonl"
    if not arguments.report:
        path.parent.mkdir(parents=True, exist_ok=True)
        done = {(row["policy"], row["item"]) for row in read_rows([path])} if path.is_file() else set()
        items = list(_items(arguments.most))
        for policy in arguments.policies:
            missing = [item for item in items if (policy, item.name) not in done]
            if missing:
                _measure(policy, missing, arguments.fractions, path)
    rows = read_rows([path])
    for case in dict.fromkeys(row["case"] for row in rows):
        show_table(str(case), COLUMNS, lines_of([row for row in rows if row["case"] == case]))
    return 0


def _items(per_case: int) -> Iterator[CalibrationItem]:
    passages = []
    for document in read_documents(DEFAULT_TEXTS):
        passages += passages_of(document.text)[:20]  # of many documents
        if len(passages) > 64 * per_case:
            break
    lengths = prompt_words(PROMPT_TOKENS, TOKENS_PER_WORD)
    yield from (item for item in items_of(" ".join(passages), per_case, lengths) if item.wanted in CASES)


def _measure(policy: str, items: Sequence[CalibrationItem], fractions: Sequence[float], path: Any) -> None:
    options = EngineOptions(
        extra=semblend_flags({**OPTIONS, "recompute_policy": policy}),
        environment={"PYTHONPATH": str(ROOT / "src")},
        kv_cache_gib=1,
        threads=1,
        dtype=native_dtype(),
    )
    with launch(vllm_spec(options)) as server:
        progress(f"{policy}: server ready after {server.startup_s or 0:.0f} s")
        engine = Engine(server.base_url, 600.0)
        served = _Served(engine, engine.served_model()[0], policy)
        for item in items:
            with path.open("a") as stream:
                stream.writelines(json.dumps(row) + "\n" for row in served.rows(item, fractions))
            progress(f"{policy}: {item.name}")


class _Served:
    def __init__(self, engine: Engine, model: str, policy: str) -> None:
        self._engine, self._model, self._policy = engine, model, policy
        self._salt = secrets.token_hex(16)

    def rows(self, item: CalibrationItem, fractions: Sequence[float]) -> list[dict[str, Any]]:
        for donor in item.donors:
            self._ask(donor, 1, reuse=False, capture=True)
        blends = []
        for fraction in fractions:
            for attempt in range(ATTEMPTS):
                reply, spent = self._ask(item.recipient, 1, share=fraction, capture=False)
                known = _provenance(reply)
                if known.get("runs") and (known["selected_by"] == self._policy or not needs_leaning(self._policy)):
                    break
                time.sleep(min(5.0, 0.5 * 2**attempt))
            answer, _ = self._ask(item.recipient, ANSWER_TOKENS, share=fraction, capture=False)
            blends.append((fraction, known, spent, answer_of(answer)))
        _, cold_s = self._ask(item.recipient, 1, reuse=False, capture=False)
        cold = answer_of(self._ask(item.recipient, ANSWER_TOKENS, reuse=False, capture=False)[0])
        return [
            {
                "policy": self._policy,
                "case": item.wanted.value,
                "item": item.name,
                "fraction": fraction,
                "selected_by": known.get("selected_by"),
                "prompt_tokens": known.get("prompt_tokens"),
                "reused_tokens": known.get("reused_tokens", 0),
                "computed_tokens": known.get("computed_tokens", 0),
                "kl": divergence(cold, blended),
                "first_token_s": spent,
                "cold_s": cold_s,
            }
            for fraction, known, spent, blended in blends
        ]

    def _ask(self, prompt: str, tokens: int, **hints: Any) -> tuple[bytes, float]:
        record = {
            "model": self._model,
            "prompt": prompt,
            "max_tokens": tokens,
            "temperature": 0.0,
            "logprobs": TOP,
            "return_tokens_as_token_ids": True,
            "cache_salt": self._salt,
            "kv_transfer_params": {KEY: hints},
        }
        started = time.perf_counter()
        reply = self._engine.ask(json.dumps(record).encode())
        return reply, time.perf_counter() - started


def _provenance(reply: bytes) -> dict[str, Any]:
    found: dict[str, Any] = (json.loads(reply).get("kv_transfer_params") or {}).get(KEY) or {}
    return found


COLUMNS = ("policy", "fraction", "items", "selected by it", "reused", "KL, its answer", "better", "TTFT x")


def lines_of(rows: Sequence[Row]) -> list[tuple[object, ...]]:
    """One line per policy and fraction; ``better`` counts the items with less KL than under the first policy."""
    arms: dict[tuple[str, float], dict[str, Row]] = {}
    for row in rows:
        arms.setdefault((row["policy"], row["fraction"]), {})[row["item"]] = row
    first = next(iter(arms))[0] if arms else ""
    lines: list[tuple[object, ...]] = []
    for (policy, fraction), mine in arms.items():
        base = arms.get((first, fraction), {})
        shared = [item for item in mine if item in base]
        better = sum(mine[item]["kl"] < base[item]["kl"] for item in shared)
        ratios = [row["cold_s"] / row["first_token_s"] for row in mine.values()]
        reused = [row["reused_tokens"] / row["prompt_tokens"] for row in mine.values() if row["prompt_tokens"]]
        lines.append(
            (
                policy,
                fraction,
                len(mine),
                sum(row["selected_by"] == policy for row in mine.values()),
                f"{np.mean(reused):.0%}" if reused else None,
                mean_interval([row["kl"] for row in mine.values()]).shown("{:.4f}"),
                f"{better} of {len(shared)}" if policy != first else None,
                f"{np.median(ratios):.1f}",
            )
        )
    return lines


if __name__ == "__main__":
    raise SystemExit(main())
