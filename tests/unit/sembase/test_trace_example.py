"""The example trace and the guide about traces: what they show is so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from semantic_kv.workload import make_workload
from sembase.trace.load import load_trace, read_records

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples" / "traces" / "rag_serving_trace.jsonl"
GUIDE = (ROOT / "docs" / "guides" / "traces.md").read_text(encoding="utf-8")


def test_the_example_is_the_workload_the_guide_names() -> None:
    drawn = make_workload("low_memory_rag_stress", seed=7, sessions=8, requests_per_session=5)
    trace = load_trace(EXAMPLE)
    assert trace.nodes.tolist() == drawn.trace.nodes.tolist()
    assert trace.node_tokens.tolist() == drawn.trace.node_tokens.tolist()
    assert trace.session.tolist() == drawn.trace.session.tolist()


def test_the_example_holds_no_text_and_says_that_its_figures_are_invented() -> None:
    for record in read_records(EXAMPLE):
        assert record.metadata["observed"] == "invented"
        assert all(block.text is None for block in record.blocks)
        assert record.observed_ttft_ms is not None
        assert record.observed_prefill_tokens is not None
        assert record.observed_prefix_hit_tokens is not None
        assert record.observed_prefill_tokens + record.observed_prefix_hit_tokens == record.prompt_tokens


@pytest.mark.parametrize("block", re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL))
def test_the_guide_prints_what_it_says(
    block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    exec(compile(block, "traces.md", "exec"), {})
    shown = "".join(line.removeprefix("# ") + "\n" for line in block.splitlines() if line.startswith("# "))
    assert capsys.readouterr().out == shown
