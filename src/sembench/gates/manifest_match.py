"""Are the rows the manifest's items, all of them, as they were? Nothing else can show a row that was left out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from sembench.manifest import manifest_digest, read_manifest
from sembench.metrics.rows import RequestRow

_SAME: Final = ("dataset", "source_id", "transform", "negative_control", "tenant")


def manifest_failures(path: Path, result: Mapping[str, Any], rows: Sequence[RequestRow]) -> Iterator[str]:
    digest = manifest_digest(path)
    if result["run"].get("manifest_digest") != digest:
        yield f"the result was made from another manifest: {result['run'].get('manifest_digest')!r}, not {digest!r}"
        return
    max_items = result["run"].get("max_items")
    items = {item.item_id: item for item in read_manifest(path, max_items if type(max_items) is int else None)}
    found = {row.item_id: row for row in rows}
    if lost := [name for name in items if name not in found]:
        yield f"{len(lost)} of the manifest's {len(items)} items have no row ({lost[0]} first)"
    if strange := [name for name in found if name not in items]:
        yield f"{len(strange)} rows are of no item of the manifest ({strange[0]} first)"
    for name, item in items.items():
        row = found.get(name)
        for field in _SAME if row is not None else ():
            if getattr(row, field) != getattr(item, field):
                yield f"row {name}: {field} is {getattr(row, field)!r}, in the manifest {getattr(item, field)!r}"
