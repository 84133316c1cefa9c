"""``make walk``: from recorded traffic to a verdict and its proof on a real vLLM server, by the commands a user has.

Calibrate the server as it is (kvmend proxy, simulate calibrate); record chats through kvmend proxy; kvmend estimate;
kvmend bench build --from-trace; run-live-gateway --paired with the connector, and without it; report. Then what the
estimate predicted beside what was measured, on the same requests. Finished steps are not repeated.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from scripts.engines.server import EngineServer, EngineStartError
from scripts.engines.specs import SERVED_NAME, EngineOptions, native_dtype, semblend_flags, vllm_missing, vllm_spec

from benchmarks.console import RESULTS, environment, progress, show_table
from benchmarks.corpus import TOKENIZER
from benchmarks.documents import DEFAULT_TEXTS, ROOT
from benchmarks.equal_threads import launch
from benchmarks.simulator.served import record_plan
from benchmarks.walk import compare
from benchmarks.walk.recording import ChatFailedError, kinds_of, record
from benchmarks.walk.steps import OtherWalkError, Steps
from benchmarks.walk.traffic import chats, spare_texts
from semantic_kv.collect import PlanOptions, plan_requests
from sembase.trace.load import read_records

CORES = "0-1"
BLOCK_TOKENS = 128  # of vLLM's CPU backend
TOP_LOGPROBS = 20
PASS_TOKENS = 2_048
EXACT_RESET = "/reset_prefix_cache"
FULL_RESET = "/reset_prefix_cache?reset_external=true"
CALIBRATION_TEXTS = 30


class StepFailedError(Exception):
    """A command of a step failed; the message names it."""


class Walk:
    """The files of one walk; a method per step."""

    def __init__(self, folder: Path, arguments: argparse.Namespace) -> None:
        self.folder = folder
        self.arguments = arguments
        self.recording, self.traces = folder / "recording", folder / "recording" / "traces"
        self.manifest, self.events = folder / "workload.jsonl", folder / "events.jsonl"
        self.calibration = folder / "calibration" / "calibration.json"

    def calibrate(self, server: EngineServer) -> None:
        served = self.folder / "served"
        shutil.rmtree(served, ignore_errors=True)
        plan = PlanOptions(
            requests=self.arguments.calibration_requests,
            min_prompt_tokens=200,
            max_prompt_tokens=2_400,
            output_tokens=8,
            seed=self.arguments.seed,
        )
        steps = plan_requests(spare_texts(self.arguments.texts, CALIBRATION_TEXTS), plan)
        flags = ("--tokenizer", str(TOKENIZER))
        record_plan(steps, server.base_url, served, model=SERVED_NAME, flags=flags, report=progress)
        _command(
            "semantic_kv",
            *("calibrate", "--trace", str(served), "--output-dir", str(self.calibration.parent), "--overwrite"),
            *("--pass-tokens", str(PASS_TOKENS)),
        )

    def record(self, server: EngineServer) -> None:
        traffic = chats(self.arguments.texts, self.arguments.chats, self.arguments.seed)
        flags = ("--redact-text", "false", "--tokenizer", str(TOKENIZER))
        record(traffic, server.base_url, self.recording, model=SERVED_NAME, flags=flags, report=progress)

    def estimate(self, _: EngineServer | None = None) -> None:
        _command(
            "semblend.cli",
            *("estimate", str(self.traces), "--calibration", str(self.calibration), "--tokenizer", str(TOKENIZER)),
            *("--output", str(self.folder / "estimate.html"), "--json", str(self.folder / "estimate.json")),
        )

    def build(self, _: EngineServer | None = None) -> None:
        _command("sembench", "build", "--from-trace", str(self.traces), "--output", str(self.manifest))
        _command("sembench", "audit-manifest", "--manifest", str(self.manifest))

    def prove(self, server: EngineServer) -> None:
        audit = ("--connector-audit", str(self.events), "--check-propagation", "0.2")
        self._replay(server, "result.json", "--reset-url", FULL_RESET, *audit)

    def prove_stock(self, server: EngineServer) -> None:
        self._replay(server, "result-stock.json", "--reset-url", EXACT_RESET)

    def _replay(self, server: EngineServer, output: str, *more: str) -> None:
        _command(
            "sembench",
            *("run-live-gateway", "--manifest", str(self.manifest), "--output", str(self.folder / output), "--paired"),
            *("--gateway-url", server.base_url, "--endpoint", "chat", "--block-size", str(BLOCK_TOKENS)),
            *("--recipient-max-tokens", "8", "--capture-logprobs", str(TOP_LOGPROBS), "--settle-ms", "3000"),
            *("--tokenizer", str(TOKENIZER), "--metrics-url", f"{server.base_url}/metrics", "--resume", *more),
        )

    def report(self, _: EngineServer | None = None) -> None:
        _command("sembench", "report", str(self.folder / "result.json"), "--html", str(self.folder / "report.html"))


def main() -> int:
    arguments = _parse()
    if (missing := vllm_missing()) is not None or not arguments.texts.is_dir():
        progress(f"nothing measured: {missing or f'no texts in {arguments.texts} (--texts FOLDER)'}")
        return 3
    options = {name: getattr(arguments, name) for name in ("chats", "calibration_requests", "seed")}
    try:
        _walk(arguments, options)
    except (OtherWalkError, StepFailedError, ChatFailedError, EngineStartError, compare.ComparisonError) as error:
        progress(f"the walk stopped: {error}")
        progress("what is finished is kept: run the same command again to continue")
        return 1
    return 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.walk", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--chats", type=int, default=38, help="chats to record, at least 38 (default: 38)")
    parser.add_argument("--calibration-requests", type=int, default=80, help="of the calibration (default: 80)")
    parser.add_argument("--texts", type=Path, default=DEFAULT_TEXTS, help="folder of the real texts")
    parser.add_argument("--folder", type=Path, default=RESULTS / "walk", help="where the walk keeps its files")
    parser.add_argument("--fresh", action="store_true", help="discard what an earlier walk left in the folder")
    parser.add_argument("--seed", type=int, default=0, help="seed of the order of the chats (default: 0)")
    return parser.parse_args()


def _walk(arguments: argparse.Namespace, options: Mapping[str, Any]) -> None:
    folder: Path = arguments.folder
    steps = Steps(folder, options, fresh=arguments.fresh)
    walk = Walk(folder, arguments)
    _with_server(steps, {"1 calibrate the stock server": walk.calibrate}, ())
    ours = semblend_flags({"events": str(walk.events)})
    with_connector: dict[str, Callable[[EngineServer], None]] = {
        "2 record": walk.record,
        "3 estimate": walk.estimate,
        "4 build": walk.build,
        "5 run-live, connector": walk.prove,
    }
    _with_server(steps, with_connector, ours)
    _with_server(steps, {"6 run-live, stock": walk.prove_stock}, ())
    steps.run("7 report", walk.report)
    _show(steps, walk)


def _with_server(steps: Steps, work: Mapping[str, Callable[[EngineServer], None]], flags: tuple[str, ...]) -> None:
    """Starts the server only if a step needs it."""
    if all(map(steps.is_done, work)):
        for name in work:
            progress(f"{name}: finished before, {steps.seconds()[name]:.0f} s")
        return
    with _serving(flags) as server:
        steps.note("starting servers", server.startup_s or 0.0)
        for name, step in work.items():
            steps.run(name, partial(step, server))


@contextmanager
def _serving(flags: tuple[str, ...]) -> Iterator[EngineServer]:
    common = ("--enable-prompt-tokens-details", "--max-logprobs", str(TOP_LOGPROBS))
    extra = (*common, "--max-num-batched-tokens", str(PASS_TOKENS), *flags)
    options = EngineOptions(
        cores=CORES,
        dev_mode=True,
        extra=extra,
        environment={"PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"},
        startup_timeout_s=900.0,
        dtype=native_dtype(),
    )
    progress(f"starting vLLM {'with the connector' if flags else 'without connector'}")
    with launch(vllm_spec(options)) as server:
        progress(f"vLLM ready after {server.startup_s:.0f} s")
        yield server


def _command(module: str, *words: str) -> None:
    shown = f"{module.partition('.')[0].replace('_', '-')} {words[0]}"
    progress(shown)
    code = subprocess.run([sys.executable, "-m", module, *words], check=False).returncode
    if code:
        raise StepFailedError(f"{shown} ended with {code}")


def _show(steps: Steps, walk: Walk) -> None:
    estimate = compare.read_json(walk.folder / "estimate.json")
    predicted = compare.predictions(walk.traces, TOKENIZER, estimate)
    ids = [each.request_id for each in read_records(walk.traces)]
    result, stock = (compare.read_json(walk.folder / name) for name in ("result.json", "result-stock.json"))
    pairs = compare.pairs_of(kinds_of(walk.recording), predicted, compare.measurements(result, stock, ids))
    show_table("Predicted and measured, by kind of chat", compare.KIND_COLUMNS, compare.kind_rows(pairs))
    savings = compare.savings(pairs)
    columns = ("prefill seconds (TTFT) saved", "predicted", "measured", "error")
    show_table(f"Saved on the same {len(pairs)} requests", columns, [each.cells() for each in savings])
    progress(
        "predicted: unlimited prefix cache, every earlier prompt a donor, default gates; measured: each request after "
        "the (at most four) earlier requests it repeats, alone on the server. Chats are replayed as one user message"
    )
    if (cost := compare.connector_cost(pairs)) is not None:
        progress(
            f"cold TTFT with the connector minus without: median {1e3 * cost.p50:.0f} ms, n {cost.n}, "
            f"from {1e3 * cost.low:.0f} to {1e3 * cost.high:.0f} ms"
        )
    _show_calibration(walk)
    seconds = steps.seconds()
    rows = [*((name, f"{each:.0f} s") for name, each in seconds.items()), ("all", f"{sum(seconds.values()):.0f} s")]
    show_table("Time", ("step", "seconds"), rows)
    record_path = walk.folder / "walk.json"
    figures = [{"name": each.name, "predicted_s": each.predicted_s, "measured_s": each.measured_s} for each in savings]
    written = {"environment": environment(), "savings": figures, "seconds": seconds, "when": time.strftime("%F %T")}
    record_path.write_text(json.dumps(written, indent=1) + "\n")
    progress(f"pages: {walk.folder / 'estimate.html'}, {walk.folder / 'report.html'}; figures: {record_path}")


def _show_calibration(walk: Walk) -> None:
    found = compare.read_json(walk.calibration)["model"]
    progress("calibration: " + ", ".join(f"{name} {value:.4g}" for name, value in found.items() if name != "source"))


if __name__ == "__main__":
    raise SystemExit(main())
