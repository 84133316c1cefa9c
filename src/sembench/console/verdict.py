"""A verdict of ``assert-result-gates`` for people: one line with the outcome, then the gates, failures first."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Any, Final

from sembench.report.gate_table import GateRow, gate_rows

COLUMNS: Final = 80
MIN_COLUMNS: Final = 60
_STATES: Final = {"fail": "FAIL", "missing": "none", "pass": "ok"}
_ORDER: Final = tuple(_STATES)
_GAP: Final = "  "
_MIN_WORDS: Final = 20
_MAX_BASIS: Final = 22


def verdict_text(report: Mapping[str, Any], columns: int = COLUMNS) -> str:
    """``report`` is what the command writes as JSON. ``columns`` (at least ``MIN_COLUMNS``) bounds every line."""
    rows = sorted(gate_rows(report), key=lambda row: _ORDER.index(row.state))
    failures = [str(failure) for failure in report["failures"]]
    head = f"{'PASSED' if report['passed'] else 'FAILED'}: {_outcome(rows, failures)}"
    lines = [*textwrap.wrap(head, columns), ""]
    if rows:
        lines += [*_table(rows, columns), ""]
    for failure in failures:
        lines += textwrap.wrap(failure, columns, initial_indent="- ", subsequent_indent="  ")
    if failures:
        lines.append("")
    checked = f"checked: {'; '.join(map(str, report['checked']))}"
    return "\n".join([*lines, *textwrap.wrap(checked, columns, subsequent_indent="  ")]) + "\n"


def _outcome(rows: list[GateRow], failures: list[str]) -> str:
    if failures:
        return f"{len(failures)} of the checks failed" if len(failures) > 1 else "one check failed"
    missing = sum(row.state == "missing" for row in rows)
    unmeasured = f"; {missing} accepted without a measurement (--allow-missing)" if missing else ""
    judged = len(rows) - missing
    return f"{judged} {'gate' if judged == 1 else 'gates'} met, every consistency check held{unmeasured}"


def _table(rows: list[GateRow], columns: int) -> list[str]:
    cells = [("", "gate", "wanted", "found", "basis")]
    cells += [(_STATES[row.state], row.words, row.wanted, row.found, row.basis) for row in rows]
    widths = [max(len(line[i]) for line in cells) for i in range(5)]
    widths[4] = min(widths[4], _MAX_BASIS)
    spare = columns - sum(widths) + widths[1] - len(_GAP) * 4
    widths[1] = min(widths[1], max(_MIN_WORDS, spare))
    if spare < _MIN_WORDS:  # long limits or figures: they wrap too
        rest = columns - widths[0] - _MIN_WORDS - widths[4] - len(_GAP) * 4
        widths[3] = min(widths[3], rest // 2)
        widths[2] = min(widths[2], rest - widths[3])
    drawn = [line for row in cells for line in _wrapped(row, widths)]
    return [drawn[0], _GAP.join("-" * width for width in widths), *drawn[1:]]


def _wrapped(row: tuple[str, ...], widths: list[int]) -> list[str]:
    parts = [textwrap.wrap(cell, max(width, 1)) or [""] for cell, width in zip(row, widths, strict=True)]
    height = max(map(len, parts))
    filled = [part + [""] * (height - len(part)) for part in parts]
    return [_GAP.join(filled[i][level].ljust(widths[i]) for i in range(len(row))).rstrip() for level in range(height)]
