"""A reader who meets a decline reason finds it in the table of the troubleshooting page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from semblend import DeclineReason

PAGE = Path(__file__).parents[2] / "docs" / "operate" / "troubleshooting.md"
ROW = re.compile(r"^\| (`[^|]+) \| [^|]+ \| [^|]+ \|$", re.MULTILINE)
NAMED = {name for cell in ROW.findall(PAGE.read_text(encoding="utf-8")) for name in re.findall("`([^`]+)`", cell)}


@pytest.mark.parametrize("reason", DeclineReason)
def test_every_decline_reason_has_a_row(reason: DeclineReason) -> None:
    """The reasons of the guard share one row, whatever the class."""
    assert re.sub("^guard_off:.*", "guard_off:CLASS", reason) in NAMED
