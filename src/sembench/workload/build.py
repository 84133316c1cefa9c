"""Records in, workload items out: applies the transforms to each record and counts what could not be built."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from sembase.errors import ConfigurationError
from sembench.manifest import WorkloadItem
from sembench.workload.record import SourceRecord
from sembench.workload.transforms import TRANSFORMS, Skipped, TransformContext


@dataclass(slots=True)
class BuildCounts:
    """``skipped`` counts, per transform and reason, the records a transform could not be applied to.

    Records with a document of more than ``max_context_chars`` are skipped as a whole.
    """

    max_context_chars: int | None = None
    records: int = 0
    items: int = 0
    negative_controls: int = 0
    datasets: dict[str, None] = field(default_factory=dict)
    skipped: dict[str, Counter[str]] = field(default_factory=dict)

    def skip(self, name: str, reason: str) -> None:
        self.skipped.setdefault(name, Counter())[reason] += 1


@dataclass(frozen=True, slots=True)
class Built:
    items: tuple[WorkloadItem, ...]
    skipped: dict[str, dict[str, int]]


def build_items(records: Sequence[SourceRecord], transforms: Sequence[str], context: TransformContext) -> Built:
    counts = BuildCounts()
    items = tuple(iterate_items(records, transforms, context, counts))
    return Built(items, {name: dict(reasons) for name, reasons in counts.skipped.items()})


def iterate_items(
    records: Iterable[SourceRecord], transforms: Sequence[str], context: TransformContext, counts: BuildCounts
) -> Iterator[WorkloadItem]:
    """Holds one record and the ids of all items (about 100 bytes each). An item's id must occur once."""
    if repeated := [name for name, count in Counter(transforms).items() if count > 1]:
        raise ConfigurationError(f"transform given twice: {', '.join(repeated)}")
    functions = [(name, TRANSFORMS.get(name)) for name in transforms]
    seen: set[str] = set()
    for record in records:
        counts.records += 1
        counts.datasets[record.dataset] = None
        if not record.context.strip():
            counts.skip("(record)", "empty context")
            continue
        if counts.max_context_chars is not None and len(record.context) > counts.max_context_chars:
            counts.skip("(record)", f"document of more than {counts.max_context_chars} characters")
            continue
        for name, transform in functions:
            outcome = transform(record, context)
            if isinstance(outcome, Skipped):
                counts.skip(name, outcome.reason)
                continue
            if outcome.item_id in seen:
                raise ConfigurationError(
                    f"{outcome.dataset}/{outcome.source_id} occurs twice in the source; give its rows different ids"
                )
            seen.add(outcome.item_id)
            counts.items += 1
            counts.negative_controls += outcome.negative_control
            yield outcome
