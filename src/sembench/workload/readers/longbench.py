"""LongBench rows: v1 ``{input, context, answers, _id, ...}``; v2 has multiple-choice questions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from sembench.workload.readers.fields import text_of, texts_of
from sembench.workload.record import SourceRecord


def read_longbench(rows: Iterable[Mapping[str, Any]], dataset: str) -> Iterator[SourceRecord]:
    for index, row in enumerate(rows):
        yield from_longbench_v1(row, dataset, index)


def from_longbench_v1(row: Mapping[str, Any], dataset: str, index: int) -> SourceRecord:
    where = f"{dataset}[{index}]"
    return SourceRecord(
        dataset=dataset,
        source_id=str(row.get("_id") or f"{index:06d}"),
        context=text_of(row, "context", where),
        question=text_of(row, "input", where, default=""),
        answers=texts_of(row, "answers", where),
        metadata={"language": row.get("language"), "length": row.get("length"), "source_index": index},
    )


def from_longbench_v2(row: Mapping[str, Any], index: int) -> SourceRecord:
    where = f"longbench-v2[{index}]"
    choices = "\n".join(f"{letter}. {text_of(row, f'choice_{letter}', where)}" for letter in "ABCD")
    return SourceRecord(
        dataset=text_of(row, "domain", where, default="longbench-v2"),
        source_id=str(row.get("_id") or f"{index:06d}"),
        context=text_of(row, "context", where),
        question=f"{text_of(row, 'question', where)}\n{choices}\nAnswer with one letter.",
        answers=(text_of(row, "answer", where),),
        metadata={
            "difficulty": row.get("difficulty"),
            "length": row.get("length"),
            "option_letter": True,
            "source_index": index,
            "sub_domain": row.get("sub_domain"),
        },
    )
