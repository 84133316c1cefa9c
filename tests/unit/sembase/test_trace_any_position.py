"""Reuse at any position of a trace: texts, redacted records, folders, and records that show whole blocks only.

The count that digests are compared with is checked here too, against every window of every request.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.sembase.counted_reuse import counted_reuse
from tests.unit.sembase.exact_reuse import exact_reuse

from sembase.trace.anonymise import anonymise
from sembase.trace.build import in_time_order
from sembase.trace.from_prompt import record_from_prompt
from sembase.trace.load import read_records
from sembase.trace.record import TraceBlock, TraceRecord
from sembase.trace.save import save_records


def covered_by_brute_force(
    rows: list[list[int]], tenants: list[int], window: int, block: int
) -> tuple[list[int], list[int]]:
    prefix_counts, either_counts = [], []
    for number, row in enumerate(rows):
        earlier = [rows[n] for n in range(number) if tenants[n] == tenants[number]]
        shared = max([_common(row, other) for other in earlier], default=0)
        prefix = shared - shared % block
        covered = set(range(prefix))
        windows = {tuple(other[i : i + window]) for other in earlier for i in range(len(other) - window + 1)}
        for start in range(len(row) - window + 1):
            if tuple(row[start : start + window]) in windows:
                covered.update(range(start, start + window))
        prefix_counts.append(prefix)
        either_counts.append(len(covered))
    return prefix_counts, either_counts


def _common(left: list[int], right: list[int]) -> int:
    length = 0
    while length < min(len(left), len(right)) and left[length] == right[length]:
        length += 1
    return length


rows_and_tenants = st.lists(
    st.tuples(st.lists(st.integers(0, 2), max_size=14), st.integers(-1, 1)), min_size=1, max_size=6
)


@given(drawn=rows_and_tenants, window=st.integers(1, 5), block=st.integers(1, 4))
@settings(max_examples=200, deadline=None)
def test_the_exact_count_is_what_brute_force_finds(drawn: list[tuple[list[int], int]], window: int, block: int) -> None:
    rows, tenants = [row for row, _ in drawn], [tenant for _, tenant in drawn]
    found = exact_reuse(
        [np.array(row, np.int32) for row in rows], tenants=tenants, min_repeat_tokens=window, block_tokens=block
    )
    prefix, either = covered_by_brute_force(rows, tenants, window, block)
    assert found.prefix.tolist() == prefix
    assert found.either.tolist() == either


def passage(name: str, words: int = 150) -> str:
    return " ".join(f"{name}{n}" for n in range(words))


def records(*prompts: str, tenants: tuple[str, ...] = ("a", "a")) -> list[TraceRecord]:
    return [
        record_from_prompt(prompt, request_id=f"r{n}", timestamp_ms=n, tenant_id=tenant)
        for n, (prompt, tenant) in enumerate(zip(prompts, tenants, strict=True))
    ]


MOVED = (f"one two\n\n{passage('harbour')}\n\nthree", f"zero\n\nfour five\n\n{passage('harbour')}\n\nsix seven")


def test_a_passage_that_moved_is_found_in_texts_and_in_redacted_records(tmp_path: Path) -> None:
    texts = records(*MOVED)
    folder = tmp_path / "rotated"
    folder.mkdir()
    save_records(texts[:1], folder / "a.jsonl")
    save_records(texts[1:], folder / "b.jsonl.gz")
    redacted = list(anonymise(texts, b"0123456789abcdef"))
    found = [counted_reuse(in_time_order(read_records(folder), "rotated")), counted_reuse(redacted)]
    for each in found:
        assert each.prefix_tokens == 0
        assert abs(each.either_tokens - 300) <= 6  # 150 words of a name and a number
        assert each.added_tokens == each.either_tokens
        assert each.either_tokens / each.prompt_tokens == pytest.approx(300 / each.prompt_tokens, rel=0.03)
        assert each.shown == {"any_position": 2}
        assert each.forgotten_tokens == 0
    assert found[0].prompt_tokens == found[1].prompt_tokens


def test_tenants_share_nothing() -> None:
    assert counted_reuse(records(*MOVED, tenants=("a", "b"))).either_tokens == 0


def test_records_without_text_and_digests_show_whole_blocks() -> None:
    redacted = [replace(each, content_digests=None) for each in anonymise(records(*MOVED), b"0123456789abcdef")]
    found = counted_reuse(redacted)
    assert found.shown == {"block": 2}
    assert abs(found.either_tokens - 300) <= 6
    cut = records(MOVED[0], MOVED[1].replace("harbour140", "pier"))
    changed = [replace(each, content_digests=None) for each in anonymise(cut, b"0123456789abcdef")]
    assert counted_reuse(changed).either_tokens == 0  # the texts would show 280
    assert abs(counted_reuse(cut).either_tokens - 280) <= 6


def test_hash_traces_show_prefixes_only() -> None:
    ids = [("p", "q", "r"), ("p", "q", "s")]
    chained = [
        TraceRecord(f"r{n}", n, tuple(TraceBlock("other", 512, block_id=i) for i in each), visible_reuse="prefix")
        for n, each in enumerate(ids)
    ]
    found = counted_reuse(chained)
    assert found.shown == {"prefix": 2}
    assert found.prefix_tokens == 1024
    assert found.added_tokens < 8
