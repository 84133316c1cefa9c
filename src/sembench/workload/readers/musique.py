"""Multi-hop questions with their retrieved passages: ``{ctxs: [{title, text}], question, answers}``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from sembench.workload.readers.fields import rows_of, text_of, texts_of
from sembench.workload.record import SourceRecord


def read_musique(rows: Iterable[Mapping[str, Any]], dataset: str) -> Iterator[SourceRecord]:
    for index, row in enumerate(rows):
        where = f"{dataset}[{index}]"
        passages = []
        for passage in rows_of(row, "ctxs", where):
            title = text_of(passage, "title", where, default="").strip()
            text = text_of(passage, "text", where).strip()
            passages.append(f"{title}\n{text}" if title else text)
        yield SourceRecord(
            dataset=dataset,
            source_id=f"{index:06d}",
            context="\n\n".join(passages),
            question=text_of(row, "question", where),
            answers=texts_of(row, "answers", where),
            passages=tuple(passages),
            metadata={"score": "short_answer", "source_index": index},
        )
