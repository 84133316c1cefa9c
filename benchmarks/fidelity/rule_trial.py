"""Runs selection rules over composition and reorder items in the engine's environment. One JSON line per item and rule.

Called by ``benchmarks.fidelity.inside --rules``. Items are taken in batches: their signals are measured, then every
rule is tried on them, so that an interrupted run has rows of every rule; the next run measures the signals again, but
tries only the rules that have no row yet. An item's layers are ranked on the others measured so far.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scripts.models.known import KnownModel

from benchmarks.console import progress
from benchmarks.discovery.codec import TokenizerCodec
from benchmarks.documents import DEFAULT_TEXTS
from benchmarks.fidelity.figures import done_in
from benchmarks.fidelity.items import COMPOSITION, REORDER, FidelityItem, FidelitySet
from benchmarks.fidelity.measured_signals import load, measure
from benchmarks.fidelity.readings import POSITIONS, Reading, gap, reading_of
from benchmarks.fidelity.rig import Rig
from benchmarks.fidelity.rules import DIGEST_LAYERS, RuleArm, parse_rule, ranked_layers
from benchmarks.fidelity.signals import Signals
from benchmarks.vllm.texts import TokenIds, read_texts
from semblend.contract import Decline, ReusePlan, TokenRange
from semblend.plan.selection import joined

BATCH = 8  # items; of two cases, four of each
REPEAT = "\n\nRepeat the text above word for word:\n"


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """An item, the KV its plan loads, and the cold model along the given text and along its own answer."""

    item: FidelityItem
    plan: ReusePlan
    loaded: tuple[torch.Tensor, ...]
    answer_tokens: TokenIds
    text: Reading
    answer: Reading
    signals: Signals


class RuleTrial:
    def __init__(self, rig: Rig, repeat: TokenIds, out: Path) -> None:
        self._rig, self._repeat, self._out = rig, repeat, out
        self._done = done_in(out)

    def run(self, items: Sequence[FidelityItem], arms: Sequence[RuleArm]) -> None:
        prepared: list[Prepared] = []
        for start in range(0, len(items), BATCH):
            for item in items[start : start + BATCH]:
                if (made := self._prepare(replace(item, reference=item.reference[:POSITIONS]))) is not None:
                    prepared.append(made)
                progress(f"measured: {item.name}")
            self._try_all(prepared, arms)

    def _try_all(self, prepared: Sequence[Prepared], arms: Sequence[RuleArm]) -> None:
        signals = {one.item.name: _calibrated(one, prepared) for one in prepared}
        for name, seen in signals.items():
            progress(f"layers for {name}: {' '.join(map(str, seen.middle[:DIGEST_LAYERS]))}")
        for arm in arms:
            for one in prepared:
                if (key := (one.item.name, arm.name)) not in self._done:
                    self._try(one, arm.name, arm.choose(signals[one.item.name]))
                    self._done.add(key)
            progress(arm.name)

    def _prepare(self, item: FidelityItem) -> Prepared | None:
        rig = self._rig
        plan = rig.plan(item)
        if isinstance(plan, Decline):
            progress(f"declined: {item.name}: {plan.detail}")
            return None
        cold = rig.cold(item)
        tokens = rig.answer(item, cold)
        answer = rig.along(item, tokens, rig.cold_blocks, cold.first)
        signals, loaded = measure(rig, item, plan, (item.reference, tokens), self._repeat)
        rig.forget(item)
        return Prepared(item, plan, loaded, tokens, cold.reading, answer, signals)

    def _try(self, one: Prepared, name: str, chosen: NDArray[np.int64]) -> None:
        """Load, recompute the chosen positions with the gaps, and read both texts."""
        rig, item, plan = self._rig, one.item, one.plan
        load(rig, plan, one.loaded)
        ranges = joined(plan.compute, chosen)
        count = len(item.reference)
        ids = np.asarray((*item.recipient, *item.reference[:-1]), np.int64)
        whole = (*ranges, TokenRange(plan.claim_end, len(ids)))
        positions = np.concatenate([np.arange(part.start, part.end) for part in whole])
        hidden = rig.forward.compute(torch.tensor(rig.blocks), whole, ids[positions])
        logprobs = rig.logprobs(hidden[-count:])
        text = reading_of(logprobs.numpy(), np.asarray(item.reference, np.int64))
        answer = rig.along(item, one.answer_tokens, rig.blocks, logprobs[:1])
        computed = plan.computed_tokens + len(chosen)
        tokens = {"computed_tokens": computed, "reused_tokens": plan.claimed_tokens - computed}
        more = tokens | {"groups": len(ranges), "claimed_tokens": plan.claimed_tokens}
        self._write(one, name, text, answer, more)

    def _write(self, one: Prepared, name: str, text: Reading, answer: Reading, more: dict[str, Any]) -> None:
        item = one.item
        found = gap(one.text, text, np.asarray(item.reference, np.int64), min(item.answer_tokens, POSITIONS))
        tokens = np.asarray(one.answer_tokens, np.int64)
        own = gap(one.answer, answer, tokens, len(tokens))
        row = {
            "item": item.name,
            "case": item.case,
            "source": item.source,
            "arm": name,
            "prompt_tokens": len(item.recipient),
            "cold_ms": None,
            **asdict(found),
            "answer_kl": own.kl,
            "answer_kept": own.right,
            **more,
        }
        with self._out.open("a") as stream:
            stream.write(json.dumps(row) + "\n")


def _calibrated(one: Prepared, prepared: Sequence[Prepared]) -> Signals:
    """Layers ranked on items with other recipients; those of one number share theirs. Of a single item: on itself."""
    others = [other.signals for other in prepared if other.item.number != one.item.number] or [one.signals]
    return replace(one.signals, middle=ranked_layers(others))


def run(engine: Any, model: KnownModel) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rules", nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--size", default="1K")
    parser.add_argument("--cases", nargs="+", default=[COMPOSITION, REORDER])
    parser.add_argument("--sources", nargs="+", default=["questions"])
    parser.add_argument("--most", type=int, default=5, help="items per case and source")
    parser.add_argument("--skip", type=int, default=0, help="leave out the first items per case and source")
    parser.add_argument("--no-repeat", dest="repeat", action="store_false")
    parser.add_argument("--texts", type=Path, default=DEFAULT_TEXTS)
    arguments = parser.parse_args()
    arms = [parse_rule(text) for text in arguments.rules]
    codec = TokenizerCodec(model.tokenizer)
    texts = read_texts(arguments.texts, codec, model.tokenizer)
    items = FidelitySet(arguments.texts, texts, codec, arguments.size, first_token=model.first_token)
    numbers = range(arguments.skip, arguments.skip + arguments.most)
    kinds = [(case, source) for case in arguments.cases for source in arguments.sources]
    made = [items.make(*kind, number) for number in numbers for kind in kinds]
    progress(f"{len(made)} items, {len(arms)} rules")
    with torch.inference_mode():
        rig = Rig(engine)
        repeat = items.encode(REPEAT) if arguments.repeat else ()
        RuleTrial(rig, repeat, arguments.out).run(made, arms)
    return 0
