"""The cells of the vLLM benchmark are what their names say: exact lengths, no common prefix, real reuse inside."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.discovery.codec import WordCodec
from benchmarks.discovery.oracle import Oracle
from benchmarks.vllm.soak import SeenWindows
from benchmarks.vllm.texts import Question, Texts
from benchmarks.vllm.workload import (
    CASES,
    COMPOSED,
    EDITED,
    REFERENCE_TOKENS,
    SAME_DOCUMENT,
    SIZES,
    Item,
    Workload,
    edit,
    far_order,
    quoted,
)

WORDS = 9_000


@pytest.fixture(scope="module")
def workload() -> Workload:
    codec = WordCodec()
    random = np.random.default_rng(3)

    def text(words: int) -> str:
        return " ".join(f"w{number}" for number in random.integers(0, 50_000, words))

    def tokens(words: int) -> tuple[int, ...]:
        return tuple(codec.encode(text(words)).tolist())

    questions = []
    for number in range(90):
        shown = tuple(f"{text(90)} answer{number} {text(90)}" for _ in range(10))
        passages = tuple(tuple(codec.encode(part).tolist()) for part in shown)
        questions.append(Question(f"who {number}", f"answer{number}", passages, shown))
    documents = tuple(tokens(WORDS) for _ in range(4))
    return Workload(Texts("made up", documents, (tokens(WORDS), tokens(WORDS)), tuple(questions)), codec, seed=1)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("size", ["1K", "8K"])
def test_an_item_has_its_exact_size_and_nothing_of_its_prefix_in_a_donor(
    workload: Workload, size: str, case: str
) -> None:
    item = workload.make(size, case, 2)

    assert len(item.recipient) == SIZES[size]
    assert len(item.donors) == (5 if case == COMPOSED else 1)
    assert all(donor[0] != item.recipient[0] for donor in item.donors)
    assert 0 < len(item.reference) <= REFERENCE_TOKENS
    assert item == workload.make(size, case, 2) != workload.make(size, case, 3)


@pytest.mark.parametrize(("case", "least", "most"), [(SAME_DOCUMENT, 0.9, 1.0), (EDITED, 0.5, 0.99)])
def test_most_of_a_recipient_was_seen_in_its_donor(workload: Workload, case: str, least: float, most: float) -> None:
    assert least < _seen_share(workload.make("1K", case, 0)) < most


@pytest.mark.parametrize("case", ["5 reordered", COMPOSED])
def test_every_section_of_a_recipient_was_seen(workload: Workload, case: str) -> None:
    assert _seen_share(workload.make("2K", case, 1)) > 0.9


def test_unrelated_text_is_in_no_donor(workload: Workload) -> None:
    donors = [np.asarray(workload.make("1K", case, 0).donors[0], dtype=np.uint32) for case in CASES]

    assert not Oracle(donors).ask(np.asarray(workload.unrelated(1_024, 5), dtype=np.uint32)).reusable.any()


def test_edits_are_few_single_tokens() -> None:
    before = tuple(range(1_000))
    after = edit(before, 0.01, np.random.default_rng(1))

    assert sum(a != b for a, b in zip(before, after, strict=True)) == 10
    assert set(after) <= set(before)


def test_an_order_keeps_neither_places_nor_neighbours() -> None:
    for seed in range(50):
        order = far_order(5, np.random.default_rng(seed))
        assert sorted(order) == list(range(5))
        assert all(place != index for place, index in enumerate(order))
        assert all(order[i + 1] != order[i] + 1 for i in range(4))


def test_a_quote_comes_from_the_passage_with_the_answer() -> None:
    question = Question("q", "Exeter College", ((1,), (2,)), ("nothing here", "he went to exeter college in 1620"))

    assert quoted(question) == (1, "he went to exeter college in 1620")
    assert quoted(Question("q", "absent", ((1,),), ("only text",))) == (0, "only text")


def test_windows_count_positions_that_came_before() -> None:
    seen = SeenWindows()

    assert seen.repeated(tuple(range(200))) == 0
    assert seen.repeated((*range(1_000, 1_050), *range(100, 200), *range(2_000, 2_050))) == 100
    assert seen.repeated(tuple(range(63))) == 0


def _seen_share(item: Item) -> float:
    oracle = Oracle([np.asarray(donor, dtype=np.uint32) for donor in item.donors])
    found = oracle.ask(np.asarray(item.recipient, dtype=np.uint32)).reusable
    return float(found.mean())


def test_a_models_first_token_begins_every_prompt_within_its_size(workload: Workload) -> None:
    texts, codec = workload._texts, WordCodec()
    begun = Workload(texts, codec, 1, first_token="<bos>")
    first = int(codec.encode("<bos>")[0])
    item = begun.make("1K", SAME_DOCUMENT, 0)
    assert {prompt[0] for prompt in (*item.donors, item.recipient, begun.unrelated(512, 1))} == {first}
    assert len(item.recipient) == SIZES["1K"]
    assert len(begun.unrelated(512, 1)) == 512
