"""``python -m benchmarks.walk.redacted``: 120 chats recorded redacted and with text; ``kvmend estimate`` of both.

A stand-in answers: this is about records, not about engine figures. Fails if a figure differs by more than 1 %.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.fakes.openai_server import running

from benchmarks.console import RESULTS, progress, show_table, show_verdicts
from benchmarks.corpus import TOKENIZER
from benchmarks.documents import DEFAULT_TEXTS
from benchmarks.targets import Verdict
from benchmarks.walk.compare import read_json
from benchmarks.walk.recording import record
from benchmarks.walk.traffic import chats

MAX_DIFFERENCE = 0.01


def figures_of(estimate: Mapping[str, Any]) -> dict[str, float]:
    """What both records can show; causes of breaks need text."""
    figures = estimate["figures"]
    plans = figures["anywhere"]
    return {
        "requests": figures["requests"],
        "prompt tokens": figures["prompt"]["tokens"],
        "prefix tokens": figures["prefix_tokens"],
        "found beyond it": sum(each["work"]["tokens"] for each in plans["found"].values()),
        "served by default gates": sum(each["work"]["tokens"] for each in plans["served"].values()),
        "requests served": sum(each["requests"] for each in plans["served"].values()),
        "prefill seconds": estimate["verdict"]["prefill_s"],
        "seconds saved": estimate["verdict"]["saved_s"],
    }


def difference(first: float, second: float) -> float:
    return abs(first - second) / max(abs(first), abs(second)) if first != second else 0.0


def estimate(traces: Path, *more: str) -> dict[str, Any]:
    output = traces.parent / "estimate.json"
    words = ("estimate", str(traces), "--output", str(traces.parent / "estimate.html"), "--json", str(output))
    subprocess.run([sys.executable, "-m", "semblend.cli", *words, "--quiet", *more], check=True, stdout=sys.stderr)
    return read_json(output)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chats", type=int, default=120)
    parser.add_argument("--texts", type=Path, default=DEFAULT_TEXTS, help="folder of the real texts")
    options = parser.parse_args()
    if not TOKENIZER.is_file() or not options.texts.is_dir():
        progress("nothing compared: no tokenizer (make models) or no texts (--texts FOLDER)")
        return 3
    folder = RESULTS / "walk-redacted"
    shutil.rmtree(folder, ignore_errors=True)
    found = []
    with running() as upstream:
        for name, redact in (("redacted", "true"), ("text", "false")):
            flags = ("--redact-text", redact, "--tokenizer", str(TOKENIZER))
            traffic = chats(options.texts, options.chats)
            record(traffic, upstream, folder / name, model="fake-model", flags=flags, report=progress)
            tokenizer = ("--tokenizer", str(TOKENIZER)) if name == "text" else ()
            found.append(figures_of(estimate(folder / name / "traces", *tokenizer)))
    redacted, text = found
    rows = [
        (name, f"{redacted[name]:,.6g}", f"{value:,.6g}", f"{difference(redacted[name], value):.3%}")
        for name, value in text.items()
    ]
    show_table(f"estimate of the same {options.chats} chats", ("figure", "redacted", "with text", "difference"), rows)
    worst = max(difference(redacted[name], value) for name, value in text.items())
    verdicts = [Verdict("largest difference", "<=", MAX_DIFFERENCE, worst)]
    show_verdicts(verdicts)
    return 0 if all(verdict.holds for verdict in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
