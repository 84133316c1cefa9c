"""Generated answer tasks, any number of each from a seed; a dataset is a task."""

from __future__ import annotations

from typing import Final

from sembench.workload.record import SourceRecord
from sembench.workload.seeded import Draws
from sembench.workload.sources.base import SourceRequest
from sembench.workload.tasks import DEFAULT, TASKS
from sembench.workload.tasks.base import record_of

_DEFAULT_ITEMS: Final = 50


def read_answers(request: SourceRequest) -> list[SourceRecord]:
    count = _DEFAULT_ITEMS if request.max_items_per_dataset is None else request.max_items_per_dataset
    return [
        record_of(
            TASKS.get(task)(Draws("sembench-answers", request.seed, task, index), request.context_words),
            task,
            f"{request.seed}-{index:05d}",
        )
        for task in request.datasets or DEFAULT
        for index in range(count)
    ]
