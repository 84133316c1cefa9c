"""docs/METRICS.md is held against the declarations. To accept a change: ``make docs``."""

from __future__ import annotations

import re
from pathlib import Path

from sembench.metrics import ORDER, metric_names, reference_table
from sembench.workload.transforms import PAIRED

DOCS = Path(__file__).parents[2] / "docs"
METRICS = DOCS / "METRICS.md"
GENERATED = re.compile(r"(?<=<!-- generated: metrics -->\n).*?(?=<!-- end -->)", re.DOTALL)


def test_the_table_is_the_code() -> None:
    found = GENERATED.search(METRICS.read_text(encoding="utf-8"))
    assert found is not None
    assert found.group() == reference_table()


def test_every_metric_is_in_the_table() -> None:
    names = re.findall(r"^\| `(\w+)` \|", reference_table(), re.MULTILINE)
    assert tuple(names) == ORDER
    assert set(ORDER) <= set(metric_names())


def test_the_guide_names_every_transform() -> None:
    guide = (DOCS / "guides" / "sembench.md").read_text(encoding="utf-8")
    assert [name for name in (*PAIRED, "stream") if f"`{name}`" not in guide] == []
