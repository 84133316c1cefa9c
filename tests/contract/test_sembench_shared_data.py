"""Real texts and traces, where they lie beside the repository: what a prefix cache covers and what repeats anyway."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from scripts.data.folder import REAL_DATA

from sembase.tokenizer import open_tokenizer
from sembench.audit.manifest import audit_items
from sembench.manifest import write_manifest
from sembench.planner import PlannerConfig
from sembench.replay.offline import OfflineRun, run_offline
from sembench.replay.session import ReplayConfig
from sembench.scoring import mark
from sembench.scoring.base import task_of
from sembench.workload.build import build_items
from sembench.workload.sources import SOURCES, SourceRequest
from sembench.workload.transforms import PAIRED, TransformContext

TEXTS = REAL_DATA / "text"
pytestmark = [
    pytest.mark.shared_data,
    pytest.mark.skipif(not TEXTS.is_dir(), reason="no real texts; run: make data"),
]


def replay_stream(tmp_path: Path, profile: str, dataset: str, most: int | None = None) -> dict[str, Any]:
    records = SOURCES.get(profile)(SourceRequest((dataset,), TEXTS, most))
    items = build_items(records, ("stream",), TransformContext(records)).items
    write_manifest(tmp_path / "m.jsonl", items)
    config = ReplayConfig(planner=PlannerConfig(min_reuse_ratio=0.0))
    figures = run_offline(OfflineRun(manifest=tmp_path / "m.jsonl", output=tmp_path / "r.json", config=config))[
        "aggregate"
    ]
    assert isinstance(figures, dict)
    assert figures["unverified_planned_token_rate"] == 0
    return figures


def test_retrieved_passages_repeat_but_not_as_prefixes(tmp_path: Path) -> None:
    figures = replay_stream(tmp_path, "jsonl", "musique_s")
    assert figures["requests"] == 150
    assert figures["exact_prefix_block_rate"] < 0.01
    assert 0.35 < figures["any_position_token_rate"] < 0.45
    # What repeats in runs of 64 is found: the planner misses at most blocks cut by the grid.
    assert figures["semantic_candidate_block_rate"] > figures["any_position_token_rate"] - 0.03


def test_agents_repeat_mostly_as_prefixes(tmp_path: Path) -> None:
    figures = replay_stream(tmp_path, "agent-trace", "agent_taubench")
    assert figures["requests"] == 471
    assert figures["exact_prefix_block_rate"] > 0.8


def test_news_hardly_repeat(tmp_path: Path) -> None:
    figures = replay_stream(tmp_path, "jsonl", "multi_news", 60)
    assert figures["any_position_token_rate"] < 0.02


@pytest.mark.parametrize(
    ("dataset", "most"),
    [("multi_news", 6), ("musique_s", 6), ("multifieldqa_zh", 4), ("coursera", 6), ("qmsum_test", 6)],
)
def test_real_manifests_pass_the_audit(dataset: str, most: int) -> None:
    records = SOURCES.get("jsonl")(SourceRequest((dataset,), TEXTS, most))
    built = build_items(records, PAIRED, TransformContext(records, max_segments=6))
    assert audit_items(built.items, open_tokenizer(None)).violations == ()
    present = {item.transform for item in built.items}
    assert {"exact_repeat", "rag_reorder", "fuzzy_edit_1pct", "cross_tenant"} <= present


@pytest.mark.parametrize(("dataset", "most"), [("musique_s", 40), ("multi_news", 40), ("multidoc_qa", 40), ("tpo", 20)])
def test_gold_answers_of_questions_over_real_texts_are_right_and_exact(dataset: str, most: int) -> None:
    records = SOURCES.get("jsonl")(SourceRequest((dataset,), TEXTS, most))
    names = ("instruction_variant", "rag_reorder", "multi_donor_composite", "fuzzy_edit_5pct")
    items = build_items(records, names, TransformContext(records)).items
    assert {item.transform for item in items} == set(names)
    for item in items:
        found = mark(f"{item.answers[0]}\n", task_of(item.answers, item.metadata, 0.6))
        assert (found.value, found.right) == (1.0, True)
