"""Checks that the rows are exactly the manifest's items. No other check can find a row that was left out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from sembench.manifest import manifest_digest, read_manifest
from sembench.metrics.rows import RequestRow

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
    failures = list(_differences({item.item_id: item for item in asked}, {row.item_id: row for row in rows}))
    if len(asked) < len(items) and not allow_partial:
        failures.append(
            f"only {len(asked)} of the manifest's {len(items)} items were selected (run.max_items); "
            "--allow-partial-manifest accepts this"
        )
    return ManifestMatch(len(asked), len(items), tuple(failures))


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
