"""Runs the fixed set through every arm, in the engine's environment. Writes one JSON line per item and arm.

Called by ``benchmarks.fidelity.inside``, which ``python -m benchmarks.fidelity`` starts. Cold readings are cached under
``.cache/fidelity`` by the digest of model, engine and text: 6 MB per item.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scripts.models.known import KnownModel

import vllm
from benchmarks.console import progress
from benchmarks.discovery.codec import TokenizerCodec
from benchmarks.documents import DEFAULT_TEXTS, ROOT
from benchmarks.fidelity.arm import Arm, parse_arm
from benchmarks.fidelity.facts import FACTS, UNREAD, UPDATES
from benchmarks.fidelity.figures import FLOOR, done_in
from benchmarks.fidelity.items import (
    CASES,
    COMPOSITION,
    COUNTS,
    EDITS,
    ISOLATED,
    MIXTURE,
    NEW,
    REORDER,
    STANDARD_CASES,
    FidelityItem,
    FidelitySet,
)
from benchmarks.fidelity.readings import Reading, gap
from benchmarks.fidelity.rig import Rig, Timed
from benchmarks.vllm.texts import TokenIds, read_texts
from semblend.contract import Decline, ReusePlan
from semblend.plan.selection import Selection, needs_question

CACHE = ROOT / ".cache" / "fidelity"
FORMAT = 2
FACTS_OF = {
    NEW: (FACTS, UNREAD),
    EDITS: (FACTS, UPDATES),
    **dict.fromkeys((REORDER, COMPOSITION, ISOLATED, MIXTURE), (FACTS,)),
}
OTHER_PIECE = 256  # the noise floor: the same prompt, computed in pieces as a busy engine would


@dataclass(frozen=True, slots=True, eq=False)
class Cold:
    """The cold model along the item's text and along ``tokens``, its own answer; a time only if taken in this run."""

    text: Reading
    tokens: TokenIds
    answer: Reading
    ms: float | None


class Laboratory:
    def __init__(self, rig: Rig, model: Path, out: Path, times: int) -> None:
        self._rig = rig
        self._model = model_digest(model, str(rig.cache.dtype))
        self._out = out
        self._times = times
        self._timed: dict[str, int] = {}
        self._done = done_in(out)

    def run(self, item: FidelityItem, arms: Sequence[Arm]) -> None:
        arms = [arm for arm in arms if (item.name, arm.name) not in self._done]
        if not arms:
            return
        rig = self._rig
        cold = self._cold(item)
        if (item.name, FLOOR) not in self._done:
            self._write(item, FLOOR, rig.cold(item, OTHER_PIECE), rig.cold_blocks, cold, {})
        rig.store(item)
        plans = {gates: rig.plan(item, gates) for gates in {arm.gates for arm in arms}}
        for arm in arms:
            plan = plans[arm.gates]
            if isinstance(plan, Decline):
                self._append({"item": item.name, "case": item.case, "arm": arm.name, "declined": plan.reason.value})
                continue
            selection = arm.selection_for(plan)
            started = time.perf_counter()
            seen = asdict(rig.load(rig.command(item, plan, selection)))
            timed = rig.finish(item, plan, started)
            more = _shares(plan) | _probes(item, plan, selection) | seen
            self._write(item, arm.name, timed, rig.blocks, cold, more)
        rig.forget(item)

    def _cold(self, item: FidelityItem) -> Cold:
        """Readings may come from the cache, times never: they are compared only with others of this run."""
        path = CACHE / f"{self._model}-{item.digest()}.npz"
        wanted = self._timed.get(item.case, 0) < self._times
        if path.is_file() and not wanted:
            with np.load(path) as stored:
                text, answer = (
                    Reading(stored[f"{name}_logprobs"], stored[f"{name}_loss"], stored[f"{name}_top"])
                    for name in ("text", "answer")
                )
                return Cold(text, tuple(stored["said"].tolist()), answer, None)
        timed = self._rig.cold(item)
        tokens = self._rig.answer(item, timed)
        answer = self._rig.along(item, tokens, self._rig.cold_blocks, timed.first)
        if wanted:
            self._timed[item.case] = self._timed.get(item.case, 0) + 1
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".partial.npz")
        named = {
            f"{name}_{field}": getattr(reading, field)
            for name, reading in (("text", timed.reading), ("answer", answer))
            for field in ("logprobs", "loss", "top")
        }
        named["said"] = np.asarray(tokens, np.int64)
        np.savez(partial, **named)
        partial.rename(path)
        return Cold(timed.reading, tokens, answer, timed.first_token_ms if wanted else None)

    def _write(
        self,
        item: FidelityItem,
        arm: str,
        timed: Timed,
        blocks: tuple[int, ...],
        cold: Cold,
        more: dict[str, Any],
    ) -> None:
        found = gap(cold.text, timed.reading, np.asarray(item.reference, np.int64), item.answer_tokens)
        answer = self._rig.along(item, cold.tokens, blocks, timed.first)
        own = gap(cold.answer, answer, np.asarray(cold.tokens, np.int64), len(cold.tokens))
        row = {
            "item": item.name,
            "case": item.case,
            "source": item.source,
            "arm": arm,
            "prompt_tokens": len(item.recipient),
            "cold_ms": cold.ms,
            "first_token_ms": timed.first_token_ms,
            **asdict(found),
            "answer_kl": own.kl,
            "answer_kept": own.right,
            **more,
        }
        self._append(row)

    def _append(self, row: dict[str, Any]) -> None:
        with self._out.open("a") as stream:
            stream.write(json.dumps(row) + "\n")


def _probes(item: FidelityItem, plan: ReusePlan, selection: Selection) -> dict[str, Any]:
    """What selection computes besides gaps and selected tokens, over the claim: the question."""
    is_asked = selection.fraction > 0 and needs_question(selection.policy)
    question = len(item.recipient) - plan.claim_end
    return {"probe_share": question / plan.claimed_tokens if is_asked else 0.0}


def _shares(plan: ReusePlan) -> dict[str, Any]:
    return {
        "claimed_tokens": plan.claimed_tokens,
        "hole_tokens": plan.computed_tokens,
        "context_share": max(run.risk.mean_share for run in plan.runs),
    }


def model_digest(model: Path, dtype: str) -> str:
    total = hashlib.sha256(f"{FORMAT} {dtype} {vllm.__version__} {torch.__version__}".encode())
    for path in sorted(model.iterdir()):
        total.update(f"{path.name} {path.stat().st_size}".encode())
        if path.name == "config.json":
            total.update(path.read_bytes())
    return total.hexdigest()[:12]


def run(engine: Any, model: KnownModel) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("arms", nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--size", default="1K")
    parser.add_argument("--cases", nargs="+", default=list(STANDARD_CASES), choices=CASES)
    parser.add_argument("--most", type=int, default=99, help="items per case and source")
    parser.add_argument("--skip", type=int, default=0, help="leave out the first items per case and source")
    parser.add_argument("--needles", type=int, default=8, help="needles per case that has them")
    parser.add_argument("--facts", type=int, default=0, help="plain facts per case that has them")
    parser.add_argument("--sources", nargs="+", help="of the items; all by default")
    parser.add_argument("--times", type=int, default=3, help="items per case whose cold prefill is timed in this run")
    parser.add_argument("--texts", type=Path, default=DEFAULT_TEXTS)
    arguments = parser.parse_args()
    arms = [parse_arm(text) for text in arguments.arms]
    codec = TokenizerCodec(model.tokenizer)
    texts = read_texts(arguments.texts, codec, model.tokenizer)
    items = FidelitySet(arguments.texts, texts, codec, arguments.size, first_token=model.first_token)
    counts = {case: dict(COUNTS[case]) for case in arguments.cases}
    for case, sources in counts.items():
        made = dict.fromkeys(FACTS_OF.get(case, ()), arguments.facts)
        if UNREAD not in (arguments.sources or ()):  # tells how often an answer is guessed, nothing of reuse
            made.pop(UNREAD, None)
        sources.update(made)
        wanted = {"needles": arguments.needles, **made}
        for source, count in sources.items():
            sources[source] = min(arguments.skip + arguments.most, wanted.get(source, count))
        if arguments.sources:
            counts[case] = {source: count for source, count in sources.items() if source in arguments.sources}
    with torch.inference_mode():
        laboratory = Laboratory(Rig(engine), model.folder, arguments.out, arguments.times)
        for number, item in enumerate(items.items(counts, arguments.skip)):
            laboratory.run(item, arms)
            progress(f"{number + 1}: {item.name}")
    return 0
