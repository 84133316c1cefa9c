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

from sembench.cli.main import COMMAND_MODULES, main

GOLDEN = Path(__file__).parent / "golden"
COMMANDS = ("", *(module.NAME for module in COMMAND_MODULES))

PROMISED = {
    "build": "--profile --output --datasets --data-dir --max-items-per-dataset --transforms --max-segments "
    "--min-segment-chars --seed",
    "run-offline": "--manifest --output --block-size --tokenizer --semblend-embedder --semblend-min-similarity "
    "--semblend-min-reuse-ratio --semblend-fuzzy-chunks --semblend-fragments "
    "--disable-multi-donor --max-items --jobs --resume",
    "run-live-sglang": "--manifest --output --base-url --model --block-size --tokenizer --max-items "
    "--donor-max-new-tokens --recipient-max-new-tokens --post-donor-delay-ms --no-flush-per-item --timeout-seconds "
    "--quality-threshold --paired --resume",
    "run-live-gateway": "--manifest --output --gateway-url --donor-url --model --tenant --template --max-items "
    "--donor-max-tokens --recipient-max-tokens --timeout-seconds --quality-threshold --paired --reset-url "
    "--concurrency --capture-logprobs --metrics-url --connector-audit --resume",
    "run-load": "--rate --concurrency --trace --time-scale --duration --slo-ttft-ms",
    "summarize-engine-events": "--engine --input --output",
    "collect-k8s-engine-events": "--engine --namespace --pod --container --tail --since --since-time --output-log "
    "--output-summary",
    "calibrate-noise-floor": "--manifest --output --gateway-url",
    "merge-results": "--output",
    "report": "--html --compare",
    "assert-result-gates": "--result --engine-summary --min-quality-pass-rate --min-semantic-placement-rate "
    "--min-backend-confirmed-block-rate --min-materialization-events --min-materialized-tokens "
    "--min-materialized-units --max-negative-control-confirmed-rate --require-materialized-reuse "
    "--require-no-engine-errors --min-blended-ttft-speedup --max-negative-control-speedup-deviation "
    "--require-contamination-check --min-semantic-eligible-lift --min-any-position-token-rate "
    "--max-warm-vs-cold-kl --noise-floor-calibration --require-joined-evidence --max-failed-pair-rate "
    "--manifest --judge-interval --min-n --allow-missing --max-contaminated-pair-rate --max-worst-kl "
    "--max-answer-flip-rate --min-identical-text-rate --stock-result --max-cold-arm-overhead --allow-partial-manifest",
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
