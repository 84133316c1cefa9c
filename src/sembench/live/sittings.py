"""The sittings of a run that was broken off: when each began and ended, what it measured, what of it was thrown away.

They stand in the first line of the partial rows and in ``run.sittings`` of the result: a failure that a later sitting
measured again is still told.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sembase.errors import ConfigurationError
from sembench.http.reply import OK
from sembench.metrics.rows import RequestRow
from sembench.replay.partial import read_partial


def statuses_of(row: RequestRow) -> list[str]:
    return [arm.status for arm in (row.cold, row.warm) if arm is not None]


def has_failed(row: RequestRow) -> bool:
    return any(status != OK for status in statuses_of(row))


def begun(kept_items: int) -> dict[str, Any]:
    """A sitting that starts with so many rows of earlier ones."""
    return {"started_at_utc": _told(datetime.now(UTC)), "kept_items": kept_items}


def ended(sitting: Mapping[str, Any], rows: Sequence[RequestRow], at: datetime, how: str) -> dict[str, Any]:
    """``rows`` are all there are at its end. Failed ones are its own: those of earlier sittings were not kept."""
    failed = [row for row in rows if has_failed(row)]
    statuses = Counter(status for row in failed for status in statuses_of(row) if status != OK)
    return {
        **sitting,
        "ended_at_utc": _told(at),
        "end": how,
        "measured_items": len(rows) - int(sitting["kept_items"]),
        "failed_items": len(failed),
        "failed_arm_statuses": dict(sorted(statuses.items())),
    }


def read_sittings(path: Path, identity: Mapping[str, Any]) -> tuple[list[RequestRow], list[dict[str, Any]]]:
    """Rows of the partial file and its sittings, the last one ended. Rows of another run or engine are refused."""
    if not path.exists():
        return [], []
    header = _header(path)
    engine = header.get("engine")
    if isinstance(engine, dict) and engine != identity["engine"]:
        raise ConfigurationError(
            f"{path}: its rows are of {_engine(engine)}, and the server is {_engine(identity['engine'])}; start the "
            "other server again, or delete the file and run without --resume"
        )
    sittings = header.get("sittings") or []
    rows = read_partial(path, {**identity, "sittings": sittings})
    if not sittings:
        return rows, []
    written = datetime.fromtimestamp(path.stat().st_mtime, UTC)
    return rows, [*sittings[:-1], ended(sittings[-1], rows, written, "broken off")]


def _header(path: Path) -> dict[str, Any]:
    """Empty if the first line is no header; whether the file is sound is for ``read_partial`` to say."""
    with path.open(encoding="utf-8") as stream:
        line = stream.readline()
    try:
        header = json.loads(line)
    except json.JSONDecodeError:
        return {}
    return header if isinstance(header, dict) else {}


def _engine(engine: Mapping[str, Any]) -> str:
    return " ".join(str(engine.get(part) or f"(no {part})") for part in ("name", "version"))


def _told(moment: datetime) -> str:
    return moment.isoformat(timespec="seconds")
