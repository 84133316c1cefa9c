"""A short coverage-guided run over the log readers, seeded with the golden logs. Optional: ``pip install atheris``."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from sembench.engine_events.dialects import DIALECTS

TESTS = Path(__file__).parents[2]
GOLDEN = Path(__file__).parent / "golden" / "engine_events"
SECONDS = 6


def test_coverage_guided_input_finds_no_crash(tmp_path: Path) -> None:
    if importlib.util.find_spec("atheris") is None:
        pytest.skip("atheris is not installed; the hypothesis tests cover the same property without coverage guidance")
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    for number, engine in enumerate(sorted(DIALECTS)):
        for log in (*GOLDEN.glob(f"{engine}*.log"), *GOLDEN.glob(f"{engine}*.jsonl")):
            for place, line in enumerate(log.read_bytes().splitlines()):
                (corpus / f"{log.stem}-{place}").write_bytes(bytes([number]) + line)
    done = subprocess.run(
        [
            sys.executable,
            str(TESTS / "fakes" / "fuzz_engine_events.py"),
            str(corpus),
            f"-max_total_time={SECONDS}",
            "-max_len=4096",
            "-timeout=5",  # a single input that takes longer is a defect
            f"-artifact_prefix={tmp_path}/",
        ],
        env={**os.environ, "PYTHONPATH": str(TESTS.parent / "src")},
        capture_output=True,
        text=True,
        timeout=20 * SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    ran = re.search(r"Done (\d+) runs", done.stderr)
    assert ran is not None
    assert int(ran.group(1)) > 1000
