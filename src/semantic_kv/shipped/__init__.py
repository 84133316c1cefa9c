"""Files that every installation has: the experiments, and a trace to try commands on. Commands take them by name."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from sembase.command_line import existing_file
from sembase.trace.locate import existing_trace

_HERE: Final = Path(__file__).parent
EXPERIMENTS: Final = _HERE / "experiments"
EXAMPLE_TRACE: Final = _HERE / "traces" / "rag_serving_trace.jsonl"
EXAMPLE: Final = "example"


def experiment_names() -> list[str]:
    return sorted(path.stem for path in EXPERIMENTS.glob("*.yaml"))


def experiment_file(text: str) -> Path:
    """The argparse type of a flag that names an experiment: a file, or the name of a shipped one."""
    return existing_file(
        text if Path(text).exists() or text not in experiment_names() else f"{EXPERIMENTS / text}.yaml"
    )


def trace_or_example(text: str) -> Path:
    """The argparse type of a flag that names a trace: what ``existing_trace`` takes, or ``example``."""
    return existing_trace(str(EXAMPLE_TRACE) if text == EXAMPLE and not Path(text).exists() else text)
