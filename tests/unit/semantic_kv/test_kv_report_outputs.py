"""What a study leaves behind: the promised files, a self-contained page that escapes all input, the verdict first."""

from __future__ import annotations

import base64
import csv
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import get_args

import pytest

from semantic_kv.bound.result import BoundKind
from semantic_kv.experiment.aggregate import COLUMNS
from semantic_kv.experiment.cells import cells_of, seed_trace
from semantic_kv.experiment.config import (
    Ablation,
    CurvePlan,
    ExperimentConfig,
    PolicyChoice,
    Published,
    WorkloadSource,
)
from semantic_kv.experiment.curves import curves_of
from semantic_kv.experiment.figures import (
    BoundFigures,
    CellFigures,
    LabelFigures,
    Tally,
    TenantFigures,
    WeightSeries,
)
from semantic_kv.experiment.study import Study, TraceFacts, add_bounds
from semantic_kv.experiment.verdict import verdict_of
from semantic_kv.report.charts_curve import sampling_chart
from semantic_kv.report.outputs import write_aggregate, write_study
from semantic_kv.report.page import page_html
from semantic_kv.report.summary_md import summary_md
from sembase.onepage.chart import Curve, Dots

HOSTILE = '<script>alert("x")</script>'
SIX_PLOTS = (
    "policy_comparison_avg_ttft",
    "policy_comparison_hit_rate",
    "tokens_saved_by_policy",
    "evictions_by_semantic_type",
    "adaptive_weights_over_time",
    "memory_utilization_over_time",
)
HIT_RATIOS = {"lru": 0.4, "adaptive_semantic+score": 0.35, "lru+second_use": 0.6, "clairvoyant": 0.8, "ceiling": 0.9}
FACTS = {"made": "now"}


def figures(name: str, trace: str) -> CellFigures:
    hits = round(1_000 * HIT_RATIOS.get(name, 0.3)) + (7 if "@" in trace else 0)
    total = Tally(100, 1_000, hits, 10_000, 10 * hits, 100 * 80.0 + 0.8 * (10_000 - 10 * hits))
    labels = (LabelFigures("system", 400, hits // 2, 1), LabelFigures("user", 600, hits - hits // 2, 6))
    tenants = (TenantFigures("tenant 0", total), TenantFigures(HOSTILE, total))
    adaptive = name.startswith("adaptive")
    weights = WeightSeries((0, 50, 99), ("system", "user"), ((2.4, 0.7), (2.6, 0.6), (3.0, 0.5))) if adaptive else None
    used = ((0, 10), (50, 900), (99, 990))
    return CellFigures(total, 5, 6, 7, 80.0, 90.0, 95.0, (total,) * 6, labels, tenants, used, weights, 0.1)


def bound(name: str, standing: BoundKind = "bound") -> BoundFigures:
    hits = round(10_000 * HIT_RATIOS[name])
    return BoundFigures(standing, 100, 1_000, None, 10_000, hits, 100 * 80.0 + 0.8 * (10_000 - hits), 0.1)


def made_study(name: str = "made_up", standing: BoundKind = "bound") -> Study:
    config = ExperimentConfig(
        experiment=name,
        description=f"made up {HOSTILE}",
        source=WorkloadSource("low_memory_rag_stress"),
        unit="tokens",
        capacities=(1_000, 2_000),
        policies=(PolicyChoice("lru"), PolicyChoice("adaptive_semantic", "score"), PolicyChoice("lru", "second_use")),
        seeds=tuple(range(6)),
        ablation=Ablation(("always", "second_use"), ("lru", "s3fifo")),
        curve=CurvePlan((PolicyChoice("lru"), PolicyChoice("s3fifo")), (500, 1_000, 2_000), (0.5, 0.1), 2),
        published=Published(96.47, 149.94, 0.6005, 0.3677),
    )
    cells = {
        cell: bound(cell.task, standing) if isinstance(cell.task, str) else figures(cell.name, cell.trace)
        for cell in cells_of(config)
    }
    keys = [seed_trace(config, seed) for seed in config.seeds]
    return Study(config, [TraceFacts(key, HOSTILE, "d", 100, 1_000, 500, 10_000, None) for key in keys], cells)


STUDY = made_study()
PAGE = page_html([STUDY], HOSTILE, FACTS)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    setting = tmp_path_factory.mktemp("study")
    write_study(STUDY, setting, FACTS)
    return setting


def test_the_picture_of_samples_shows_every_policy() -> None:
    curves = curves_of(STUDY)
    assert curves is not None
    chart = sampling_chart(STUDY, curves)
    assert chart is not None
    names = [layer.name for layer in chart.layers if isinstance(layer, Curve | Dots)]
    shown = ("exact", "50 % sampled", "10 % sampled")
    assert names == [f"{policy}, {what}" for policy in ("lru", "s3fifo") for what in shown]


def test_the_promised_files_are_there(folder: Path) -> None:
    names = {path.name for path in folder.iterdir()}
    assert {"results.json", "metrics.csv", "summary.md", "report.html"} <= names
    assert {f"{plot}.png" for plot in SIX_PLOTS} <= names
    assert {"regret_against_bound.png", "miss_ratio_curve.png", "sampled_miss_ratio_curve.png"} <= names
    for picture in folder.glob("*.png"):
        assert picture.read_bytes().startswith(b"\x89PNG"), picture
        assert picture.stat().st_size > 5_000, picture


@pytest.mark.parametrize("standing", get_args(BoundKind))
def test_every_standing_of_a_bound_has_its_words(standing: BoundKind) -> None:
    study = made_study(standing=standing)
    judged = verdict_of(study)
    assert "clairvoyant" in summary_md(study, judged)
    # What one rule attained is not a limit: another policy may do better.
    assert any("No policy can hit more" in each for each in judged.sentences) == (standing != "attained")


def test_seeds_of_different_standing_have_the_weakest_together() -> None:
    kinds: tuple[BoundKind, ...] = ("optimum", "attained", "bound")
    assert add_bounds([bound("clairvoyant", kind) for kind in kinds]).standing == "attained"
    assert add_bounds([bound("clairvoyant", kind) for kind in ("optimum", "bound")]).standing == "bound"


def test_results_hold_figures_with_numerator_and_denominator(folder: Path) -> None:
    results = json.loads((folder / "results.json").read_text())
    assert results["schema"] == "semantic_kv.results.v1"
    assert "not measured" in results["ttft"]
    ranked = next(each for each in results["standings"] if each["policy"] == "lru+second_use")
    assert ranked["total"]["hit_blocks"] / ranked["total"]["references"] == pytest.approx(ranked["hit_ratio"])
    assert len(results["cells"]) == len(STUDY.figures)
    assert results["curves"]["capacities"] == [500, 1_000, 2_000]


def test_metrics_have_a_row_per_seed_and_one_over_all(folder: Path) -> None:
    with (folder / "metrics.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    lru = [
        row for row in rows if row["policy"] == "lru" and row["model"] == "prefix_tree" and row["capacity"] == "1000"
    ]
    assert [row["seed"] for row in lru] == ["all", *map(str, range(6))]
    bounds = [row for row in rows if row["policy"] == "clairvoyant"]
    assert len(bounds) == 2 * 2 * 6
    assert bounds[0]["token_hit_ratio"] == "0.8"
    assert bounds[0]["hit_ratio"] == "", "what is not known is empty, not zero"


def test_the_summary_says_first_who_wins_and_why(folder: Path) -> None:
    lines = (folder / "summary.md").read_text().splitlines()
    assert lines[2].startswith("**lru+second_use saves")
    assert "it comes from admission, not eviction" in lines[4]
    assert any("modelled" in line and "not measured" in line for line in lines[:12])
    assert any("as published by the original" in line and "+35.66 %" in line for line in lines)


def test_a_summary_without_a_policy_better_than_lru_begins_with_that(tmp_path: Path) -> None:
    study = made_study("lru_wins")
    for cell in study.figures:
        if cell.name == "lru+second_use":
            study.figures[cell] = figures("fifo", cell.trace)
    write_study(study, tmp_path, FACTS)
    assert (tmp_path / "summary.md").read_text().splitlines()[2].startswith("**LRU wins")


class Tags(HTMLParser):
    VOID = ("meta",)

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.wrong: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)


def parsed(page: str) -> Tags:
    tags = Tags()
    tags.feed(page)
    return tags


def test_the_page_is_well_formed_and_loads_nothing() -> None:
    tags = parsed(PAGE)
    assert not tags.wrong
    assert not tags.open
    names = {name for name, _ in tags.seen}
    assert not names & {"script", "link", "img", "iframe", "object", "embed"}
    for _, attributes in tags.seen:
        assert not {"src", "style", "onclick", "srcset"} & set(attributes)
        assert (attributes.get("href") or "#").startswith("#")
    assert "http://" not in PAGE
    assert "https://" not in PAGE
    assert "url(" not in PAGE


def test_the_policy_of_the_page_allows_its_own_style_and_nothing_else() -> None:
    style = re.search(r"<style>(.*?)</style>", PAGE, re.DOTALL)
    assert style
    digest = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
    assert f"default-src &#x27;none&#x27;; style-src &#x27;sha256-{digest}&#x27;" in PAGE
    assert "prefers-color-scheme: dark" in style[1]


def test_hostile_names_stay_text() -> None:
    assert "<script" not in PAGE
    assert "&lt;script&gt;" in PAGE


def test_every_link_of_the_page_leads_somewhere() -> None:
    tags = parsed(PAGE)
    identities = [attributes["id"] for _, attributes in tags.seen if "id" in attributes]
    assert len(identities) == len(set(identities))
    for _, attributes in tags.seen:
        if "href" in attributes:
            assert str(attributes["href"])[1:] in identities


def test_every_tone_has_a_colour() -> None:
    style = PAGE[: PAGE.index("</style>")]
    used = set(re.findall(r'class="(?:curve|bars|dots|rule) (\w+)', PAGE))
    assert used
    for tone in used:
        assert f"--{tone}:" in style or tone == "muted", tone


def test_the_page_says_modelled_before_any_figure() -> None:
    body = PAGE[PAGE.index("<body>") :]
    assert body.index("TTFT modelled") < body.index(" ms")


def test_a_page_over_several_studies_puts_lru_first(tmp_path: Path) -> None:
    beaten, unbeaten = made_study("beaten"), made_study("unbeaten")
    for cell in unbeaten.figures:
        if cell.name == "lru+second_use":
            unbeaten.figures[cell] = figures("fifo", cell.trace)
    write_aggregate([beaten, unbeaten], tmp_path, FACTS)
    with (tmp_path / "aggregate_summary.csv").open(newline="") as stream:
        reader = csv.DictReader(stream)
        assert tuple(reader.fieldnames or ()) == COLUMNS
        rows = list(reader)
    assert len(rows) == 2 * 2 * 2
    text = (tmp_path / "aggregate_summary.md").read_text()
    assert "in 4 of 8 settings" in text.splitlines()[2]
    assert text.index("## Where LRU wins") < text.index("## Where another policy wins")
    page = (tmp_path / "report.html").read_text()
    assert not parsed(page).wrong
    assert page.index("unbeaten, prefix tree") < page.index("beaten, prefix tree, capacity 1,000: lru+second_use")
