"""What ``kvmend calibrate`` sends has the context risk of what a retrieval system sends, so that a law predicts it."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from benchmarks.discovery.codec import WordCodec
from benchmarks.fidelity.items import COMPOSITION, NEEDLES, REORDER, FidelitySet
from benchmarks.vllm.texts import Question, Texts, TokenIds
from benchmarks.vllm.workload import COMPOSED, SIZES, Workload

from semblend.calibrate.prompts import SHORT_TOKENS, CalibrationItem, items_of, prompt_words
from semblend.contract import Namespace, PlanShape, ReusePlan, risk_of_runs, shape_of
from semblend.pipeline.planner import Planner
from semblend.plan.gates import ADAPTER_GATES
from semblend.settings import Settings

REORDERED = "5 reordered"
GATES = replace(ADAPTER_GATES, max_context_share=1.0)  # as with ``max_predicted_kl``
TENANT = Namespace(tenant="t", model="m")
MIN_ITEMS = 9  # per class, for the default quantile
CODEC = WordCodec()


@dataclass(frozen=True, slots=True)
class Planned:
    shape: PlanShape
    risk: float
    tokens: int


def planned(donors: Sequence[TokenIds], recipient: TokenIds) -> Planned:
    with Planner(settings=Settings(embedder="none"), gates=GATES, budget_bytes=1 << 24) as planner:
        for number, donor in enumerate(donors):
            planner.register(str(number), np.asarray(donor, np.uint32), TENANT)
        plan = planner.plan(np.asarray(recipient, np.uint32), TENANT)
    assert isinstance(plan, ReusePlan), plan
    return Planned(shape_of(plan.runs), risk_of_runs(plan.runs), len(recipient))


def encode(text: str) -> TokenIds:
    return tuple(CODEC.encode(text).tolist())


def of_calibration(item: CalibrationItem) -> Planned:
    return planned([encode(donor) for donor in item.donors], encode(item.recipient))


@pytest.fixture(scope="module")
def texts() -> Texts:
    random = np.random.default_rng(3)

    def text(words: int) -> str:
        return " ".join(f"w{number}" for number in random.integers(0, 50_000, words))

    questions = []
    for number in range(90):
        shown = tuple(f"{text(300)} answer{number} {text(300)}" for _ in range(10))
        questions.append(Question(f"who {number}", f"answer{number}", tuple(map(encode, shown)), shown))
    return Texts("made up", (encode(text(9_000)),), (encode(text(9_000)),), tuple(questions))


def items(tokens_per_word: float) -> list[tuple[CalibrationItem, Planned]]:
    """The fewest items that give a law; every word has one token, whatever the estimate."""
    text = " ".join(f"c{number}" for number in range(200_000))
    made = items_of(text, MIN_ITEMS, prompt_words(SIZES["4K"], tokens_per_word))
    return [(item, of_calibration(item)) for item in made]


@pytest.fixture(scope="module")
def calibration() -> list[tuple[CalibrationItem, Planned]]:
    return items(1.0)


def test_the_default_gates_pass_texts_with_fewer_tokens_than_estimated() -> None:
    assert all(seen.shape is item.wanted for item, seen in items(1.2))


def test_the_default_gates_pass_every_item_and_it_has_the_class_it_was_made_for(
    calibration: list[tuple[CalibrationItem, Planned]],
) -> None:
    for item, seen in calibration:
        assert seen.shape is item.wanted, item.name
        assert seen.tokens <= SIZES["4K"] * 1.01, item.name
    lengths = sorted(seen.tokens for _, seen in calibration)
    assert lengths[len(lengths) // 2] < 2 * SHORT_TOKENS, "long prompts take most of the time: they are few"
    assert lengths[-1] > 0.98 * SIZES["4K"]


@pytest.mark.parametrize(("case", "shape"), [(REORDERED, PlanShape.REORDER), (COMPOSED, PlanShape.COMPOSITION)])
def test_items_cover_the_risk_of_the_servers_benchmark(
    calibration: list[tuple[CalibrationItem, Planned]], texts: Texts, case: str, shape: PlanShape
) -> None:
    workload = Workload(texts, CODEC, seed=1)
    made = [workload.make("4K", case, number) for number in range(12)]
    cover(calibration, shape, [planned(item.donors, item.recipient) for item in made])


@pytest.mark.parametrize(("case", "shape"), [(REORDER, PlanShape.REORDER), (COMPOSITION, PlanShape.COMPOSITION)])
def test_items_cover_the_risk_of_the_fidelity_benchmark(
    calibration: list[tuple[CalibrationItem, Planned]], texts: Texts, tmp_path: Path, case: str, shape: PlanShape
) -> None:
    with gzip.open(tmp_path / NEEDLES, "wt"):
        pass  # no items of that kind
    fixed = FidelitySet(tmp_path, texts, CODEC, "4K")
    made = [fixed.make(case, "questions", number) for number in range(12)]
    cover(calibration, shape, [planned(item.donors, item.recipient) for item in made])


def cover(calibration: list[tuple[CalibrationItem, Planned]], shape: PlanShape, wanted: list[Planned]) -> None:
    assert {seen.shape for seen in wanted} == {shape}
    measured = [seen.risk for item, seen in calibration if item.wanted is shape]
    risks = [seen.risk for seen in wanted]
    assert min(measured) <= min(risks) <= max(risks) < max(measured) < 1.0
    assert max(risks) > 0.6, "or the benchmark's own prompts have become harmless"
