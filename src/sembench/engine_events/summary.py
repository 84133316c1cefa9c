"""The summary of an engine's log or event stream, as ``assert-result-gates --engine-summary`` reads it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class EngineSummary:
    """Counts are ``None`` if this engine's lines cannot show them. The fields are exactly the keys of the JSON file.

    ``events`` starts with ``log_read``, the numbers of lines read; the others name their request and their line.
    """

    engine: str
    donor_registrations: int | None
    semantic_hits: int | None
    load_advertisements: int | None
    materialization_events: int | None
    materialized_tokens: int | None
    materialized_units: int | None
    rope_corrections: int | None
    engine_boundaries: int | None
    rejection_reasons: Mapping[str, int]
    errors: tuple[str, ...]
    runtime_warnings: tuple[str, ...]
    events: tuple[Mapping[str, Any], ...]
    materialized_semantic_kv_reuse: bool

    def to_json(self) -> dict[str, Any]:
        return asdict(self)
