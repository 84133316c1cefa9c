"""docs/METRICS.md is held against the declarations. To accept a change: ``make docs``."""

from __future__ import annotations

import re
from pathlib import Path

from sembench.console.offline import RATES, SHORT
from sembench.gates.engine_summary import read_engine_summaries
from sembench.gates.request_ids import requests_of_result
from sembench.metrics import ORDER, metric_names, reference_table
from sembench.must_be_zero import MUST_BE_ZERO
from sembench.planner import PlannerConfig
from sembench.replay.windows import RUN_TOKENS
from sembench.workload.transforms import PAIRED
from semblend import Gates, Settings

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


def test_every_printed_heading_is_mapped_to_its_metric() -> None:
    rows = re.findall(r"^\| ([^|`]+?)( \*)? \| `(\w+)`", METRICS.read_text(encoding="utf-8"), re.MULTILINE)
    printed = {title: name for title, _, name in rows}
    assert {title: printed.get(title) for title, _ in RATES} == dict(RATES)
    assert {check.title: printed.get(check.title) for check in MUST_BE_ZERO} == {c.title: c.name for c in MUST_BE_ZERO}
    assert tuple(title for title, short, _ in rows if short) == SHORT


def test_the_guide_states_the_defaults_of_both() -> None:
    guide = (DOCS / "guides" / "sembench.md").read_text(encoding="utf-8")
    bench, library, gates = PlannerConfig(), Settings(), Gates()
    ratios = f"{bench.min_reuse_ratio:.2f} | {gates.min_reuse_ratio:.2f}"
    assert f"| minimum planned fraction of a prompt | {ratios} |" in guide
    assert f"| minimum similarity of a discovery | {bench.min_similarity}: " in guide
    assert f" | {library.min_similarity:.2f} |" in guide
    assert bench.min_run_tokens == gates.min_run_tokens == RUN_TOKENS == 64
    assert bench.exact_materialization_only == library.exact_materialization_only
    assert bench.fuzzy_chunks == library.fuzzy_chunks


def test_links_of_the_guide_lead_somewhere() -> None:
    guide = DOCS / "guides" / "sembench.md"
    targets = re.findall(r"\]\(([^)#]+)", guide.read_text(encoding="utf-8"))
    assert "../reference/engine-summary.md" in targets
    assert [target for target in targets if not (guide.parent / target).exists()] == []


def test_the_example_of_an_engine_summary_is_one(tmp_path: Path) -> None:
    page = (DOCS / "reference" / "engine-summary.md").read_text(encoding="utf-8")
    example = re.search(r"```json\n(.*?)```", page, re.DOTALL)
    assert example is not None
    path = tmp_path / "summary.json"
    path.write_text(example.group(1))
    evidence = read_engine_summaries([path])
    assert evidence.joined_requests is not None
    assert requests_of_result(evidence.joined_requests, ["3f2a9c0d1b7e4a65"]) == ("3f2a9c0d1b7e4a65",)
