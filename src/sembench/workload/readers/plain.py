"""The simplest rows a user can write: ``{context, question?, answers?, id?, passages?}``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from sembench.workload.readers.fields import text_of, texts_of
from sembench.workload.record import SourceRecord


def read_plain(rows: Iterable[Mapping[str, Any]], dataset: str) -> Iterator[SourceRecord]:
    for index, row in enumerate(rows):
        where = f"{dataset}[{index}]"
        answers = texts_of(row, "answers", where) or texts_of(row, "answer", where)
        yield SourceRecord(
            dataset=dataset,
            source_id=str(row.get("id") or row.get("_id") or f"{index:06d}"),
            context=text_of(row, "context", where),
            question=text_of(row, "question", where, default=""),
            answers=answers,
            passages=texts_of(row, "passages", where),
            metadata={"source_index": index},
        )
