"""What an enabled provider costs where it finds nothing: new texts, a full index, nothing reused.

Every text is read by all arms in a row, in an order that changes: ours, ours with reuse and capture off for it, and,
with ``--stock``, a second server without our backend. Times of one text are compared with each other; the processor
seconds of the server's processes do not depend on what else the machine does.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import numpy as np
import psutil
from scripts.engines.generate import flush, generate
from scripts.engines.server import EngineServer
from scripts.engines.specs import EngineOptions, sglang_missing, sglang_spec

from benchmarks.console import RESULTS, exit_code, progress, show_table, show_verdicts, write_results
from benchmarks.equal_threads import launch
from benchmarks.sglang.arms import ALONE
from benchmarks.targets import Verdict

VOCABULARY = 40_000
LIMIT = 0.02


@dataclass(frozen=True, slots=True)
class Reading:
    text: int
    arm: str
    first_token_s: float
    processor_s: float


def main() -> int:
    arguments = _parse()
    if (missing := sglang_missing()) is not None:
        progress(f"nothing measured: {missing}")
        return 3
    with tempfile.TemporaryDirectory() as folder:
        events = Path(folder) / "events.jsonl"
        readings = _measure(arguments, events)
        look_ups = _look_ups_ms(events)
    verdicts = _show(readings, look_ups, arguments.tokens)
    show_verdicts(verdicts)
    record = {
        "readings": [asdict(reading) for reading in readings],
        "look_up_ms": look_ups,
        "verdicts": [verdict.as_record() for verdict in verdicts],
        "arguments": vars(arguments),
    }
    progress(f"written: {write_results('sglang-overhead', record).name} in {RESULTS.name}/")
    return exit_code(verdicts, arguments.enforce)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sglang.overhead", description=__doc__)
    parser.add_argument("--n", type=int, default=20, help="texts (default: 20)")
    parser.add_argument("--tokens", type=int, default=1024, help="tokens per text (default: 1024)")
    parser.add_argument(
        "--donors", type=int, default=20, help="donors in the index before the first text (default: 20)"
    )
    parser.add_argument("--stock", action="store_true", help="also measure a server without the backend")
    parser.add_argument("--cores", default="0", help="cores of the servers (default: 0)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--enforce", action="store_true", help="fail the run when a target is missed")
    return parser.parse_args()


@contextlib.contextmanager
def _servers(arguments: argparse.Namespace, events: Path) -> Iterator[dict[str, EngineServer]]:
    options = EngineOptions(cores=arguments.cores, extra=("--page-size", "16"), startup_timeout_s=900.0)
    with contextlib.ExitStack() as running:
        ours = running.enter_context(launch(sglang_spec(options, semblend={"events": str(events)})))
        arms = {"ours": ours, "alone": ours}
        if arguments.stock:
            arms["stock"] = running.enter_context(launch(sglang_spec(options)))
        yield arms


def _measure(arguments: argparse.Namespace, events: Path) -> list[Reading]:
    draw = random.Random(arguments.seed)

    def text() -> list[int]:
        return [draw.randrange(5, VOCABULARY) for _ in range(arguments.tokens)]

    readings = []
    with _servers(arguments, events) as arms:
        for server in set(arms.values()):
            flush(server.base_url)
        for _ in range(arguments.donors):
            generate(arms["ours"].base_url, text()[:256], max_new_tokens=1)
        for number in range(-2, arguments.n):  # two to warm up
            prompt, order = text(), draw.sample(sorted(arms), len(arms))
            for arm in order:
                # One token in front keeps the arms of a server from being exact hits of each other.
                reading = _read(number, arm, arms[arm], [sorted(arms).index(arm) + 5, *prompt])
                readings += [reading] if number >= 0 else []
            progress(f"text {number}: " + ", ".join(f"{r.arm} {r.first_token_s:.2f} s" for r in readings[-len(arms) :]))
    return readings


def _read(number: int, arm: str, server: EngineServer, prompt: Sequence[int]) -> Reading:
    before = _processor_s(server)
    reply = generate(server.base_url, prompt, max_new_tokens=1, semblend=ALONE if arm == "alone" else None)
    if reply.cached_tokens or reply.reused_tokens:
        raise SystemExit(f"text {number} was not a miss for {arm}: {reply.cached_tokens} tokens were cached")
    return Reading(number, arm, reply.first_token_s, _processor_s(server) - before)


def _processor_s(server: EngineServer) -> float:
    leader = psutil.Process(server.pid)
    times = [process.cpu_times() for process in (leader, *leader.children(recursive=True))]
    return float(sum(spent.user + spent.system for spent in times))


def _look_ups_ms(events: Path) -> list[float]:
    rows = [json.loads(line) for line in events.read_text(encoding="utf-8").splitlines()]
    return [
        row["duration_us"] / 1e3
        for row in rows
        if row["event"] == "lookup_finished" and row["decline_reason"] == "no_candidate"
    ]


def _show(readings: Sequence[Reading], look_ups: Sequence[float], tokens: int) -> list[Verdict]:
    arms = list(dict.fromkeys(reading.arm for reading in readings))
    by_arm = {arm: {r.text: r for r in readings if r.arm == arm} for arm in arms}
    lines, verdicts = [], []
    for arm in arms:
        own = by_arm[arm].values()
        lines.append((arm, len(own), f"{median(r.first_token_s for r in own):.3f}",
                      f"{median(r.processor_s for r in own):.3f}"))  # fmt: skip
    show_table(f"A miss of {tokens} tokens (medians)", ("arm", "n", "TTFT s", "processor s"), lines)
    for other in (arm for arm in arms if arm != "ours"):
        ratios = [by_arm["ours"][n].processor_s / by_arm[other][n].processor_s - 1 for n in by_arm[other]]
        low, high = np.percentile(ratios, (25, 75))
        progress(
            f"ours over {other}, processor seconds: median {median(ratios):+.4f}, quartiles {low:+.4f} {high:+.4f}"
        )
        verdicts.append(Verdict(f"overhead over {other}, processor time", "<=", LIMIT, median(ratios)))
    if look_ups:
        share = median(look_ups) / 1e3 / median(r.first_token_s for r in by_arm["ours"].values())
        progress(f"look-up: median {median(look_ups):.3f} ms, largest {max(look_ups):.3f} ms, n={len(look_ups)}")
        verdicts.append(Verdict("look-up over TTFT", "<=", LIMIT, share))
    return verdicts


if __name__ == "__main__":
    raise SystemExit(main())
