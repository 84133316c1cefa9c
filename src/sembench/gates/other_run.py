"""Another run of the same requests that a result is compared with: of a stock server, or the second cold run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sembench.gates.integrity import LIVE, integrity_failures
from sembench.metrics.rows import RequestRow


@dataclass(frozen=True, slots=True)
class OtherRun:
    """A live result whose cold arms are compared with those of the judged one."""

    result: Mapping[str, Any]
    rows: Sequence[RequestRow]


def mismatches(result: Mapping[str, Any], other: OtherRun, kind: str, settings: Sequence[str]) -> Iterator[str]:
    """Why the runs cannot be compared: different requests, settings or engines. ``kind`` names the other one."""
    if failures := integrity_failures(other.result, other.rows):
        yield f"the {kind} result contradicts itself: {failures[0]}"
    if other.result["run"].get("evidence") not in LIVE:
        yield f"the {kind} result's evidence is {other.result['run'].get('evidence')!r}; only a live run has cold arms"
    digests = [one["run"].get("manifest_digest") for one in (result, other.result)]
    if digests[0] != digests[1]:
        yield f"the {kind} result is from a different manifest: {digests[1]!r}, not {digests[0]!r}"
    for name in settings:
        ours, theirs = result["config"].get(name), other.result["config"].get(name)
        if ours != theirs:
            yield f"the {kind} result differs in {name}: {theirs!r}, not {ours!r}"
    ours, theirs = (one["engine"] if isinstance(one["engine"], Mapping) else {} for one in (result, other.result))
    for name in ("name", "version"):
        if ours.get(name) != theirs.get(name):
            yield f"the {kind} result is from a different engine: {name} {theirs.get(name)!r}, not {ours.get(name)!r}"
