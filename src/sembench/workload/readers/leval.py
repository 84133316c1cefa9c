"""L-Eval documents with many instructions each: every instruction is a record over the same document."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from sembase.errors import ConfigurationError
from sembench.workload.readers.fields import text_of, texts_of
from sembench.workload.record import SourceRecord


def read_leval(rows: Iterable[Mapping[str, Any]], dataset: str) -> Iterator[SourceRecord]:
    for index, row in enumerate(rows):
        where = f"{dataset}[{index}]"
        questions, outputs = texts_of(row, "instructions", where), texts_of(row, "outputs", where)
        if len(questions) != len(outputs):
            raise ConfigurationError(f"{where}: {len(questions)} instructions but {len(outputs)} outputs")
        for number, (question, output) in enumerate(zip(questions, outputs, strict=True)):
            yield SourceRecord(
                dataset=dataset,
                source_id=f"{index:06d}-{number:02d}",
                context=text_of(row, "input", where),
                question=question,
                answers=(output,),
                other_questions=questions[:number] + questions[number + 1 :],
                metadata={"evaluation": row.get("evaluation"), "source_index": index},
            )
