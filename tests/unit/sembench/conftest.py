"""Shared fixtures: a small corpus, a built manifest, rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from sembench.manifest import WorkloadItem, write_manifest
from sembench.workload.build import build_items
from sembench.workload.record import SourceRecord
from sembench.workload.sources import SOURCES, SourceRequest
from sembench.workload.transforms import PAIRED, TransformContext


@pytest.fixture(scope="session")
def corpus() -> list[SourceRecord]:
    return SOURCES.get("fixture")(SourceRequest())


@pytest.fixture(scope="session")
def fixture_items(corpus: list[SourceRecord]) -> tuple[WorkloadItem, ...]:
    return build_items(corpus, (*PAIRED, "stream"), TransformContext(corpus)).items


@pytest.fixture
def manifest(tmp_path: Path, fixture_items: tuple[WorkloadItem, ...]) -> Path:
    """One document with every transform, and a stream of two documents."""
    chosen = [
        i for i in fixture_items if i.source_id == "ferry" or (i.is_stream and i.source_id in ("signals", "licence"))
    ]
    path = tmp_path / "manifest.jsonl"
    write_manifest(path, chosen)
    return path
