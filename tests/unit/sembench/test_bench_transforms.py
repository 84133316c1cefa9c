from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sembase.errors import ConfigurationError
from sembench.manifest import WorkloadItem, donor_id_for, item_id_for, segment_donor_id_for
from sembench.workload.build import build_items
from sembench.workload.record import SourceRecord
from sembench.workload.seeded import Draws
from sembench.workload.segment import segments_of, split_losslessly
from sembench.workload.transforms import PAIRED, TRANSFORMS, Skipped, TransformContext

EDITED = ("fuzzy_edit", "fuzzy_edit_1pct", "fuzzy_edit_5pct", "entity_swap", "number_swap", "negation")
HARD = ("entity_swap", "number_swap", "negation")

WORDS = st.sampled_from(
    ["harbour", "was", "closed", "in", "Ingrid", "Solvang", "17", "2048", "not", "nothing", "鐘", "naïve", "is"]
)
SENTENCES = st.lists(WORDS, min_size=3, max_size=12).map(lambda words: " ".join(words) + ".")
PARAGRAPHS = st.lists(SENTENCES, min_size=1, max_size=6).map(" ".join)
SEPARATORS = st.sampled_from(["\n\n", "\n", "\n \n", "  "])


@st.composite
def records(draw: st.DrawFn) -> SourceRecord:
    """A document whose answer, a mark that occurs nowhere else, is in any of its paragraphs."""
    paragraphs = draw(st.lists(PARAGRAPHS, min_size=1, max_size=8))
    place = draw(st.integers(0, len(paragraphs) - 1))
    paragraphs[place] += " The answer is Zephyrine Quill 90817."
    passages = tuple(paragraphs) if draw(st.booleans()) else ()
    separator = "\n\n" if passages else draw(SEPARATORS)
    return SourceRecord(
        dataset="d",
        source_id=str(draw(st.integers(0, 10**6))),
        context=separator.join(paragraphs),
        question="What is the answer?",
        answers=("Zephyrine Quill 90817",),
        passages=passages,
        other_questions=draw(st.sampled_from([(), ("Who was there?",)])),
    )


OTHER = SourceRecord("other", "0", "An entirely different text about kettles, moss and slow trains in autumn rain.")
SEEDS = st.integers(0, 2**32)


@given(st.text(), st.integers(1, 9), st.integers(1, 500))
def test_splitting_loses_nothing(text: str, most: int, least: int) -> None:
    pieces = split_losslessly(text, most, least)
    assert "".join(pieces) == text
    assert len(pieces) <= most
    assert all(pieces) or not text


@given(records(), st.integers(1, 9))
def test_segments_hold_every_word_in_order(record: SourceRecord, most: int) -> None:
    segments = segments_of(record, most, 40)
    assert 1 <= len(segments) <= most
    assert " ".join(segments).split() == record.context.split()


@given(st.lists(st.sampled_from(["a", "b", "aa", "ab"]), min_size=1, max_size=60), st.integers(2, 9))
def test_an_answer_is_never_cut_in_two(words: list[str], most: int) -> None:
    text = " ".join(words)
    answer = " ".join(words[len(words) // 2 : len(words) // 2 + 4])
    pieces = split_losslessly(text, most, 3, whole=[answer])
    assert "".join(pieces) == text
    assert any(answer in piece for piece in pieces)


def test_text_without_sentences_is_cut_between_words() -> None:
    text = " ".join(["harbour"] * 200)
    pieces = split_losslessly(text, 4, 100)
    assert len(pieces) == 4
    assert {word for piece in pieces for word in piece.split()} == {"harbour"}
    assert split_losslessly("x" * 4000, 4, 100) == ["x" * 4000]


def test_ideographic_sentences_are_seams() -> None:
    sentence = "全国美国文学研究会的年会在大学举办。"
    assert all(piece.endswith("。") for piece in split_losslessly(sentence * 40, 4, 100))
    assert len(split_losslessly(sentence * 40, 4, 100)) == 4


def test_a_long_document_really_is_cut(corpus: list[SourceRecord]) -> None:
    for record in corpus:
        segments = segments_of(record, 4, 400)
        assert len(segments) == 4
        assert min(map(len, segments)) >= 400
        assert all(segment[-1] == "." for segment in segments)


@pytest.mark.parametrize("name", [*PAIRED, "stream"])
@settings(max_examples=40)
@given(record=records(), seed=SEEDS, most=st.integers(1, 6))
def test_no_transform_drops_text_or_answer(name: str, record: SourceRecord, seed: int, most: int) -> None:
    context = TransformContext([record, OTHER], max_segments=most, min_segment_chars=30, seed=seed)
    item = TRANSFORMS.get(name)(record, context)
    if isinstance(item, Skipped):
        assert name in (*EDITED, "rag_reorder", "multi_donor_composite")
        return
    for segment in segments_of(record, most, 30):
        assert segment in item.recipient_prompt
    assert record.answers[0] in item.recipient_prompt
    assert record.question in item.recipient_prompt
    # Word for word: nothing of the source is missing, and nothing occurs less often than in the source.
    assert not Counter(record.context.split()) - Counter(item.recipient_prompt.split())


@pytest.mark.parametrize("name", [*PAIRED, "stream"])
@settings(max_examples=20)
@given(record=records(), seed=SEEDS)
def test_transforms_depend_on_the_seed_alone(name: str, record: SourceRecord, seed: int) -> None:
    context = TransformContext([record, OTHER], max_segments=5, min_segment_chars=30, seed=seed)
    first, second = (TRANSFORMS.get(name)(record, context) for _ in range(2))
    assert first == second


@pytest.mark.parametrize("name", [*PAIRED, "stream"])
@settings(max_examples=20)
@given(record=records())
def test_ids_and_expectations(name: str, record: SourceRecord) -> None:
    item = TRANSFORMS.get(name)(record, TransformContext([record, OTHER], max_segments=3, min_segment_chars=30))
    if isinstance(item, Skipped):
        return
    assert item.transform == name
    assert item.item_id == item_id_for(record.dataset, record.source_id, name)
    if name == "multi_donor_composite":
        expected = [segment_donor_id_for(item.item_id, i) for i in range(len(item.donor_prompts))]
        assert item.metadata["segment_count"] == len(expected)
    else:
        expected = [] if name == "stream" else [donor_id_for(item.item_id)]
    assert [donor.donor_id for donor in item.donor_prompts] == expected
    assert {
        "expected_exact",
        "expected_semantic",
        "expected_materialize",
        "tenant",
        "template",
        "segment_count",
    } <= set(item.metadata)
    assert item.negative_control == (name in ("negative_control", "cross_tenant"))


@pytest.mark.parametrize("name", EDITED)
@settings(max_examples=40)
@given(record=records(), seed=SEEDS)
def test_edit_positions_turn_the_recipient_into_the_donor(name: str, record: SourceRecord, seed: int) -> None:
    item = TRANSFORMS.get(name)(record, TransformContext([record], seed=seed))
    if isinstance(item, Skipped):
        return
    donor, rebuilt, position = item.donor_prompts[0].text, "", 0
    assert donor != item.recipient_prompt
    for edit in item.metadata["edits"]:
        start, end = edit["recipient"]
        rebuilt += item.recipient_prompt[position:start] + donor[slice(*edit["donor"])]
        position = end
    assert rebuilt + item.recipient_prompt[position:] == donor
    assert item.metadata["hard_negative"] == (name in HARD)


def _of(items: tuple[WorkloadItem, ...], name: str) -> list[WorkloadItem]:
    return [item for item in items if item.transform == name]


def test_rag_reorder_shuffles_and_is_not_always_a_reversal(fixture_items: tuple[WorkloadItem, ...]) -> None:
    orders = [item.metadata["segment_order"] for item in _of(fixture_items, "rag_reorder")]
    assert all(order != sorted(order) for order in orders)
    assert len({tuple(order) for order in orders}) > 1


@given(st.lists(st.integers(), max_size=8), SEEDS)
def test_a_shuffle_keeps_its_items_and_changes_the_order(values: list[int], seed: int) -> None:
    shuffled = Draws(seed, "test").deranged(values)
    assert Counter(shuffled) == Counter(values)
    if len(set(values)) > 1:
        assert shuffled != values


def test_token_edits_keep_to_their_rate(fixture_items: tuple[WorkloadItem, ...], corpus: list[SourceRecord]) -> None:
    words = {record.source_id: len(re.findall(r"\w+", record.context)) for record in corpus}
    for name, rate in (("fuzzy_edit_1pct", 0.01), ("fuzzy_edit_5pct", 0.05)):
        for item in _of(fixture_items, name):
            assert len(item.metadata["edits"]) == round(rate * words[item.source_id])


def test_formatting_changes_white_space_only(fixture_items: tuple[WorkloadItem, ...]) -> None:
    for item in _of(fixture_items, "fuzzy_edit"):
        assert item.donor_prompts[0].text.split() == item.recipient_prompt.split()


def test_hard_negatives_change_what_the_answer_rests_on(fixture_items: tuple[WorkloadItem, ...]) -> None:
    """Names and figures of the answer are changed first, so reusing a changed token would answer wrongly."""
    ferry = next(item for item in _of(fixture_items, "entity_swap") if item.source_id == "ferry")
    assert "Ingrid Solvang" in ferry.recipient_prompt
    assert "order of Harbour master Ingrid Solvang" not in ferry.donor_prompts[0].text
    vault = next(item for item in _of(fixture_items, "number_swap") if item.source_id == "seedvault")
    assert "87 percent" in vault.recipient_prompt
    assert "87 percent" not in vault.donor_prompts[0].text
    for item in _of(fixture_items, "negation"):
        assert item.recipient_prompt.count(" not") != item.donor_prompts[0].text.count(" not")


@pytest.mark.parametrize("name", ["number_swap", "negation"])
def test_a_fact_is_changed_wherever_it_is_repeated(name: str, corpus: list[SourceRecord]) -> None:
    """Retrieved passages overlap: left unchanged in one of them, the fact would be there to be reused rightly."""
    body = corpus[0].context
    record = SourceRecord("d", "1", body + "\n\n" + body[len(body) // 2 :] + "\n\n" + body[: len(body) // 2])
    item = TRANSFORMS.get(name)(record, TransformContext([record]))
    assert isinstance(item, WorkloadItem)
    edits = item.metadata["edits"]
    assert len(edits) >= 4
    around: Counter[str] = Counter()
    for edit in edits:
        start, end = edit["recipient"]
        around[item.recipient_prompt[start - 10 : end + 10]] += 1
    assert min(around.values()) >= 2


def test_edits_that_meet_do_not_cancel_out() -> None:
    """The verb without 'not' here and with it there, in the same words: adding and dropping must not both happen."""
    words = "the mechanisms of these rather rare disabilities are"
    record = SourceRecord("d", "1", f"{words} known. Later on, {words} not known. " * 3)
    for seed in range(20):
        item = TRANSFORMS.get("negation")(record, TransformContext([record], seed=seed))
        assert isinstance(item, WorkloadItem)
        edits = [edit["recipient"] for edit in item.metadata["edits"]]
        assert all(end < start for (_, end), (start, _) in pairwise(edits))
        assert " not not" not in item.donor_prompts[0].text


def test_a_negative_donor_shares_no_sixteen_words(fixture_items: tuple[WorkloadItem, ...]) -> None:
    negatives = _of(fixture_items, "negative_control")
    assert len(negatives) == 6
    for item in negatives:
        words = re.findall(r"\w+|[^\w\s]", item.recipient_prompt.lower())
        donor = " " + " ".join(re.findall(r"\w+|[^\w\s]", item.donor_prompts[0].text.lower())) + " "
        assert not any(f" {' '.join(words[i : i + 16])} " in donor for i in range(len(words) - 15))
        assert item.metadata["negative_source_id"] != item.source_id


def test_a_negative_is_not_made_from_a_copy(corpus: list[SourceRecord]) -> None:
    record = corpus[0]
    padded = SourceRecord("d", "copy", "Another head.\n\n" + record.context)
    outcome = TRANSFORMS.get("negative_control")(record, TransformContext([record, padded]))
    assert outcome == Skipped("every other document tried shares 16 words in a row with this one")
    assert TRANSFORMS.get("negative_control")(record, TransformContext([record])) == Skipped(
        "the corpus has no second document"
    )


def test_cross_tenant_is_the_same_text_under_another_tenant(fixture_items: tuple[WorkloadItem, ...]) -> None:
    for item in _of(fixture_items, "cross_tenant"):
        assert item.donor_prompts[0].text == item.recipient_prompt
        assert item.donor_prompts[0].metadata["tenant"] != item.tenant


def test_the_fixture_has_distinct_documents_and_no_paragraph_twice(corpus: list[SourceRecord]) -> None:
    paragraphs = [paragraph for record in corpus for paragraph in record.context.split("\n\n")]
    assert len(corpus) >= 5
    assert len(set(paragraphs)) == len(paragraphs)
    sentences = Counter(s for p in paragraphs for s in re.split(r"(?<=[.])\s", p) if not s.startswith("Section"))
    assert sentences.most_common(1)[0][1] == 1
    for record in corpus:
        assert record.answers[0] in record.context


def test_skips_are_counted_with_their_reason() -> None:
    bare = SourceRecord("d", "1", "lower case words only with nothing to change in them")
    empty = SourceRecord("d", "2", "   ")
    built = build_items([bare, empty], ("entity_swap", "number_swap", "exact_repeat"), TransformContext([bare]))
    assert [item.transform for item in built.items] == ["exact_repeat"]
    assert built.skipped == {
        "entity_swap": {"the document has no recognisable name": 1},
        "number_swap": {"the document has no number": 1},
        "(record)": {"empty context": 1},
    }


def test_colliding_sources_and_unknown_transforms_are_refused() -> None:
    record = SourceRecord("d", "1", "some text")
    with pytest.raises(ConfigurationError, match="d/1 occurs twice"):
        build_items([record, record], ("exact_repeat",), TransformContext([record]))
    with pytest.raises(ConfigurationError, match="Did you mean 'exact_repeat'"):
        build_items([record], ("exact_repeet",), TransformContext([record]))
    with pytest.raises(ConfigurationError, match="given twice: stream"):
        build_items([record], ("stream", "stream"), TransformContext([record]))
