"""The help of every command is a promise: a changed flag, default or word shows as a changed golden file.

To accept a change: ``python tests/contract/test_sembench_help.py``.
"""

from __future__ import annotations

import contextlib
import io
import os
from pathlib import Path
from unittest import mock

import pytest

from sembench.cli.main import main

GOLDEN = Path(__file__).parent / "golden"
COMMANDS = ("", "build", "run-offline", "audit-manifest", "assert-result-gates")

PROMISED = {
    "build": "--profile --output --datasets --data-dir --max-items-per-dataset --transforms --max-segments "
    "--min-segment-chars --seed",
    "run-offline": "--manifest --output --block-size --tokenizer --semblend-embedder --semblend-min-similarity "
    "--semblend-min-reuse-ratio --semblend-fuzzy-chunks --semblend-fragments "
    "--disable-multi-donor --max-items --jobs --resume",
    "assert-result-gates": "--result --engine-summary --min-quality-pass-rate --min-semantic-placement-rate "
    "--min-backend-confirmed-block-rate --min-materialization-events --min-materialized-tokens "
    "--min-materialized-units --max-negative-control-confirmed-rate --require-materialized-reuse "
    "--require-no-engine-errors --min-blended-ttft-speedup --max-negative-control-speedup-deviation "
    "--require-contamination-check --min-semantic-eligible-lift --min-any-position-token-rate "
    "--max-warm-vs-cold-kl --noise-floor-calibration --allow-missing",
}


def help_of(command: str) -> str:
    text = io.StringIO()
    with (
        mock.patch.dict(os.environ, {"COLUMNS": "100", "NO_COLOR": "1"}),
        contextlib.redirect_stdout(text),
        contextlib.suppress(SystemExit),
    ):
        main([command, "--help"] if command else ["--help"])
    return text.getvalue()


def golden_file(command: str) -> Path:
    return GOLDEN / f"sembench_help_{command.replace('-', '_') or 'top'}.txt"


@pytest.mark.parametrize("command", COMMANDS)
def test_help_is_as_agreed(command: str) -> None:
    """Words and their order; Python versions differ in how they break and indent lines."""
    assert help_of(command).split() == golden_file(command).read_text(encoding="utf-8").split()


@pytest.mark.parametrize("command", sorted(PROMISED))
def test_every_promised_flag_is_there(command: str) -> None:
    words = set(help_of(command).replace("[", " ").replace("]", " ").split())
    assert set(PROMISED[command].split()) <= words


if __name__ == "__main__":
    for name in COMMANDS:
        golden_file(name).write_text(help_of(name), encoding="utf-8")
