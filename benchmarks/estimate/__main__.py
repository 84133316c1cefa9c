"""``make estimate-evidence``: the command on real traces and on a million generated requests, with rate and memory.

Every trace is one process of its own, so that its peak memory is its own. Outputs go to ``.cache/estimate``.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from scripts.data.folder import DATA

ROOT: Final = Path(__file__).parents[2]
TRACES: Final = (
    *(DATA / "text" / f"agent_{name}.jsonl.gz" for name in ("miniswe", "magagent", "taubench")),
    DATA / "traces" / "mooncake_conversation_trace.jsonl.gz",
    DATA / "traces" / "weka_claude_code.jsonl.gz",
)


def generate(path: Path, requests: int, seed: int = 0) -> None:
    """Redacted chats over passages of Zipf popularity: sessions of five turns, block digests only."""
    draws = random.Random(seed)
    passages = 20_000
    with path.open("w", encoding="utf-8") as stream:
        for number in range(requests):
            session, turn = divmod(number, 5)
            if turn == 0:
                chosen = [min(passages - 1, int(draws.paretovariate(0.6))) for _ in range(4)]
                history: list[tuple[str, str, int]] = []
            blocks = [("system", "0", 120), *(("retrieved_context", f"{1 + each}", 180) for each in chosen), *history]
            blocks.append(("user", f"{10**9 + number}", 40))
            history = [*history, blocks[-1], ("assistant", f"{10**10 + number}", 90)]
            record = {
                "schema": "semantic_kv.trace.v1",
                "request_id": f"r{number}",
                "timestamp_ms": number,
                "session_id": f"s{session}",
                "tenant_id": f"t{session % 50}",
                "blocks": [
                    {"semantic_type": label, "token_count": tokens, "content_hash": f"{int(name):016x}"}
                    for label, name, tokens in blocks
                ],
            }
            stream.write(json.dumps(record) + "\n")


def run(trace: Path, folder: Path) -> None:
    name = trace.name.partition(".")[0]
    page = folder / f"{name}.html"
    command = [sys.executable, "-m", "semblend.cli", "estimate", str(trace), "--output", str(page), "--quiet"]
    started = time.monotonic()
    process = subprocess.Popen([*command, "--json", str(page.with_suffix(".json"))], stdout=subprocess.PIPE, text=True)
    shown = process.stdout.read() if process.stdout is not None else ""
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = status
    seconds = time.monotonic() - started
    figures = json.loads(page.with_suffix(".json").read_text(encoding="utf-8"))["figures"]
    processor = usage.ru_utime + usage.ru_stime
    print(shown)
    print(
        f">>> {name}: {figures['requests']:,} requests in {seconds:.1f} s ({processor:.1f} s of processor time, "
        f"{figures['requests'] / processor:,.0f} requests per second), peak memory {usage.ru_maxrss / 1024:,.0f} MB\n"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", nargs="*", type=Path, help="traces instead of the standard ones")
    parser.add_argument("--generated", type=int, default=1_000_000, help="generated requests; 0 for none")
    options = parser.parse_args()
    folder = ROOT / ".cache" / "estimate"
    folder.mkdir(parents=True, exist_ok=True)
    for trace in options.traces or TRACES:
        run(trace, folder)
    if options.generated:
        generated = folder / f"generated_{options.generated}.jsonl"
        if not generated.is_file():
            generate(generated, options.generated)
        run(generated, folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
