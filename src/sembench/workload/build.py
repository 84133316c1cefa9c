"""Records in, workload items out: applies the transforms to a profile's records and counts what could not be built."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from sembase.errors import ConfigurationError
from sembench.manifest import WorkloadItem
from sembench.workload.record import SourceRecord
from sembench.workload.transforms import TRANSFORMS, Skipped, TransformContext


@dataclass(frozen=True, slots=True)
class Built:
    """``skipped`` counts, per transform and reason, the records a transform could not be applied to."""

    items: tuple[WorkloadItem, ...]
    skipped: dict[str, dict[str, int]]


def build_items(records: Sequence[SourceRecord], transforms: Sequence[str], context: TransformContext) -> Built:
    if repeated := [name for name, count in Counter(transforms).items() if count > 1]:
        raise ConfigurationError(f"transform given twice: {', '.join(repeated)}")
    functions = [(name, TRANSFORMS.get(name)) for name in transforms]
    items: list[WorkloadItem] = []
    skipped: dict[str, Counter[str]] = {}
    for record in records:
        if not record.context.strip():
            skipped.setdefault("(record)", Counter())["empty context"] += 1
            continue
        for name, transform in functions:
            outcome = transform(record, context)
            if isinstance(outcome, Skipped):
                skipped.setdefault(name, Counter())[outcome.reason] += 1
            else:
                items.append(outcome)
    _require_unique(items)
    return Built(tuple(items), {name: dict(reasons) for name, reasons in skipped.items()})


def _require_unique(items: Sequence[WorkloadItem]) -> None:
    counts = Counter(item.item_id for item in items)
    if repeated := next((item for item in items if counts[item.item_id] > 1), None):
        raise ConfigurationError(
            f"{repeated.dataset}/{repeated.source_id} occurs twice in the source; give its rows different ids"
        )
