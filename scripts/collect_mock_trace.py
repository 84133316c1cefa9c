"""``python scripts/collect_mock_trace.py --requests 50 --output-name mock_trace``: ``kvmend simulate collect --mock``
into ``outputs/live_traces/<timestamp>_<name>.jsonl``."""

from __future__ import annotations

import argparse
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from semantic_kv.cli.main import main as semantic_kv
from sembase.values import positive

FOLDER: Final = Path("outputs/live_traces")


def name(text: str) -> str:
    if not text or Path(text).name != text:
        raise argparse.ArgumentTypeError(f"'{text}' is not a plain file name")
    return text


def main() -> int:
    parser = argparse.ArgumentParser(description="Collect a trace from the mock server, in simulated time.")
    parser.add_argument("--requests", type=positive, default=25, metavar="N", help="default: %(default)s")
    parser.add_argument("--output-name", type=name, default="mock_trace", metavar="NAME", help="default: %(default)s")
    parser.add_argument("--output-dir", type=Path, default=FOLDER, metavar="DIR", help="default: %(default)s")
    parser.add_argument("--keep-raw-text", action="store_true", help="write prompts as they are instead of digests")
    options = parser.parse_args()
    options.output_dir.mkdir(parents=True, exist_ok=True)
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    output = options.output_dir / f"{stamp}_{options.output_name}.jsonl"
    words = ["collect", "--mock", "--requests", str(options.requests), "--output", str(output)]
    return semantic_kv([*words, "--keep-raw-text"] if options.keep_raw_text else words)


if __name__ == "__main__":
    sys.exit(main())
