"""Recorded rows of the guard's bench: an interrupted recording continues after its last complete item."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.guard.rows import drop_torn


def test_the_item_that_was_broken_off_is_taken_out(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    assert drop_torn(path) == set()
    assert not path.exists()
    rows = [{"item": item, "arm": arm} for item in ("a", "b", "c") for arm in ("floor", "question@0")]
    text = "".join(f"{json.dumps(row)}\n" for row in rows)
    path.write_text(text[:-5])
    assert drop_torn(path) == {"a", "b"}
    assert [json.loads(line) for line in path.read_text().splitlines()] == rows[:4]
    assert drop_torn(path) == {"a"}, "the last item may be incomplete"
