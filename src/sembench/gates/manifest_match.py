"""Checks that the rows are exactly the manifest's items, and marks their answers again.

No other check can find a row that was left out, or a mark that does not follow from the answer's text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from sembench.gates.integrity import quality_threshold
from sembench.manifest import WorkloadItem, manifest_digest, read_manifest
from sembench.metrics.rows import RequestRow
from sembench.scoring import Mark, mark
from sembench.scoring.base import task_of

_SAME: Final = ("dataset", "source_id", "transform", "negative_control", "tenant")


@dataclass(frozen=True, slots=True)
class ManifestMatch:
    """``asked`` of the manifest's ``items`` were selected for the run; both None if the manifest is a different one."""

    asked: int | None
    items: int | None
    failures: tuple[str, ...]


def match_manifest(
    path: Path, result: Mapping[str, Any], rows: Sequence[RequestRow], *, allow_partial: bool
) -> ManifestMatch:
    digest = manifest_digest(path)
    stated = result["run"].get("manifest_digest")
    if stated != digest:
        return ManifestMatch(None, None, (f"the result is from a different manifest: {stated!r}, not {digest!r}",))
    items = read_manifest(path)
    max_items = result["run"].get("max_items")
    asked = items[:max_items] if type(max_items) is int else items
    by_item = {item.item_id: item for item in asked}
    threshold = quality_threshold(result)
    failures = list(_differences(by_item, {row.item_id: row for row in rows}))
    if threshold is not None:
        failures += [message for row in rows for message in _false_marks(by_item.get(row.item_id), row, threshold)]
    if len(asked) < len(items) and not allow_partial:
        failures.append(
            f"only {len(asked)} of the manifest's {len(items)} items were selected (run.max_items); "
            "--allow-partial-manifest accepts this"
        )
    return ManifestMatch(len(asked), len(items), tuple(failures))


def _false_marks(item: WorkloadItem | None, row: RequestRow, threshold: float) -> Iterator[str]:
    """Results of versions that did not mark answers have no marks to check."""
    if item is None:
        return
    task = task_of(item.answers, item.metadata, threshold)
    for name, arm in (("cold", row.cold), ("warm", row.warm)):
        if arm is None or arm.text is None:
            continue
        stated = Mark(arm.answer_read, arm.answer_score, arm.answer_right, arm.answer_stale)
        if stated != Mark(None) and stated != (found := mark(arm.text, task)):
            yield f"row {row.item_id}: {name} answer is marked {stated}, but its text gives {found}"


def _differences(items: Mapping[str, Any], found: Mapping[str, RequestRow]) -> Iterator[str]:
    if lost := [name for name in items if name not in found]:
        yield f"{len(lost)} of the manifest's {len(items)} items have no row ({lost[0]} first)"
    if strange := [name for name in found if name not in items]:
        yield f"{len(strange)} rows belong to no item of the manifest ({strange[0]} first)"
    for name, item in items.items():
        row = found.get(name)
        for field in _SAME if row is not None else ():
            if getattr(row, field) != getattr(item, field):
                yield f"row {name}: {field} is {getattr(row, field)!r}, in the manifest {getattr(item, field)!r}"
