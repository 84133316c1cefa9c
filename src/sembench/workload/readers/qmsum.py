"""Meetings with several queries each: every query is a record over the same transcript."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from sembench.workload.readers.fields import rows_of, text_of
from sembench.workload.record import SourceRecord


def read_qmsum(rows: Iterable[Mapping[str, Any]], dataset: str) -> Iterator[SourceRecord]:
    for index, row in enumerate(rows):
        where = f"{dataset}[{index}]"
        turns = [
            f"{text_of(turn, 'speaker', where)}: {text_of(turn, 'content', where)}"
            for turn in rows_of(row, "meeting_transcripts", where)
        ]
        queries = [*rows_of(row, "general_query_list", where), *rows_of(row, "specific_query_list", where)]
        questions = [text_of(query, "query", where) for query in queries]
        for number, query in enumerate(queries):
            yield SourceRecord(
                dataset=dataset,
                source_id=f"{index:06d}-{number:02d}",
                context="\n".join(turns),
                question=questions[number],
                answers=(text_of(query, "answer", where),),
                other_questions=tuple(questions[:number] + questions[number + 1 :]),
                metadata={"source_index": index},
            )
