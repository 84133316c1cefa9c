"""The fixture manifest, byte for byte: the same on every machine and Python, or figures are not comparable.

To accept a change: ``python tests/contract/test_sembench_manifest_bytes.py``.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from sembench.manifest import encode_item
from sembench.workload.build import build_items
from sembench.workload.sources import SOURCES, SourceRequest
from sembench.workload.transforms import PAIRED, TransformContext

GOLDEN = Path(__file__).parent / "golden"
WHOLE = GOLDEN / "sembench_fixture_manifest.sha256"
SAMPLE = GOLDEN / "sembench_fixture_sample.jsonl"
SHOWN = {("ferry", "rag_reorder"), ("seedvault", "number_swap"), ("licence", "negative_control")}


def fixture_lines(seed: int = 0) -> list[bytes]:
    records = SOURCES.get("fixture")(SourceRequest())
    items = build_items(records, PAIRED, TransformContext(records, seed=seed)).items
    return [encode_item(item).encode() + b"\n" for item in items]


def sample_lines() -> bytes:
    records = SOURCES.get("fixture")(SourceRequest())
    items = build_items(records, PAIRED, TransformContext(records)).items
    return b"".join(encode_item(i).encode() + b"\n" for i in items if (i.source_id, i.transform) in SHOWN)


def digest(lines: list[bytes]) -> str:
    return hashlib.sha256(b"".join(lines)).hexdigest()


def test_the_sample_is_the_same_bytes() -> None:
    """Readable, so that a difference can be seen and not only noticed."""
    assert sample_lines().decode().splitlines() == SAMPLE.read_text(encoding="utf-8").splitlines()
    assert sample_lines() == SAMPLE.read_bytes()


def test_the_whole_manifest_is_the_same_bytes() -> None:
    assert digest(fixture_lines()) == WHOLE.read_text(encoding="utf-8").strip()


def test_another_seed_gives_other_shuffles_and_edits() -> None:
    changed = [a != b for a, b in zip(fixture_lines(), fixture_lines(seed=1), strict=True)]
    assert any(changed)
    assert not all(changed)


if __name__ == "__main__":
    WHOLE.write_text(digest(fixture_lines()) + "\n", encoding="utf-8")
    SAMPLE.write_bytes(sample_lines())
