"""How well does the calibrated model predict a real server? ``python -m benchmarks.simulator.calibration``.

Starts stock vLLM with our scripts, sends requests of spread lengths, shared beginnings and company through
kvmend proxy, fits on the earlier ones and judges on the later ones: median absolute percentage error of TTFT, target
20 %.
"""

from __future__ import annotations

import argparse
import os
import shutil
from pathlib import Path
from typing import Any

from scripts.engines.specs import SERVED_NAME, EngineOptions, count_cores, vllm_missing, vllm_spec

from benchmarks.console import RESULTS, console, exit_code, progress, show_table, show_verdicts, write_results
from benchmarks.corpus import TOKENIZER
from benchmarks.documents import DEFAULT_TEXTS, read_documents
from benchmarks.equal_threads import launch
from benchmarks.simulator.served import record_plan
from benchmarks.targets import Verdict
from semantic_kv.calibrate import Calibration, FitOptions, calibrate_records, summarize, write_calibration
from semantic_kv.collect import PlanOptions, plan_requests
from semantic_kv.collect.text import BUILT_IN_TEXT
from semantic_kv.latency import Engine
from sembase.errors import ContractError
from sembase.trace.load import read_records

CORES = "0-1"
TARGET_MDAPE = 0.20
TEXTS_USED = 40
LONG_SOURCES = frozenset({"multi_news", "natural_question", "legal_contract_qa", "coursera", "quality", "financial_qa"})


def main() -> int:
    arguments = _parse()
    folder = RESULTS / arguments.name
    folder.mkdir(parents=True, exist_ok=True)
    trace = arguments.trace or folder / "traces"
    if arguments.trace is None:
        shutil.rmtree(trace, ignore_errors=True)
        if not _collect(arguments, trace):
            return 3
    try:
        found = calibrate_records(read_records(trace), name=trace.stem, options=_fit_options(arguments))
    except ContractError as refusal:
        progress(str(refusal))
        return 1
    written = write_calibration(found, folder)
    console().print(summarize(found), markup=False, highlight=False)
    _show_by_pace(trace, found)
    verdicts = [Verdict("held-out median absolute error of TTFT", "<=", TARGET_MDAPE, found.held_out_mdape)]
    show_verdicts(verdicts)
    record: dict[str, Any] = {"calibration": found.as_record(), "verdicts": [each.as_record() for each in verdicts]}
    write_results(arguments.name, {"arguments": {key: str(value) for key, value in vars(arguments).items()}, **record})
    progress(f"written: {', '.join(path.name for path in written)} in {folder.parent.name}/{folder.name}/")
    return exit_code(verdicts, arguments.enforce)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.simulator.calibration", description=__doc__)
    parser.add_argument("--requests", type=int, default=120)
    parser.add_argument("--max-prompt-tokens", type=int, default=3_000)
    parser.add_argument("--output-tokens", type=int, default=12)
    parser.add_argument("--pass-tokens", type=int, default=2_048, help="the engine's max_num_batched_tokens")
    parser.add_argument("--utilisation", type=float, default=0.8, help="of the server in the paced stretches")
    parser.add_argument("--texts", type=Path, default=DEFAULT_TEXTS, help="folder of the real texts")
    parser.add_argument("--trace", type=Path, help="fit a trace recorded before; no server at all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--enforce", action="store_true", help="a missed target fails the run")
    parser.add_argument("--name", default="simulator-calibration", help="of the files in results/")
    return parser.parse_args()


def _collect(arguments: argparse.Namespace, traces: Path) -> bool:
    """False, with the reason said, where there is nothing to collect from."""
    plan = PlanOptions(
        requests=arguments.requests,
        max_prompt_tokens=arguments.max_prompt_tokens,
        output_tokens=arguments.output_tokens,
        utilisation=arguments.utilisation,
        seed=arguments.seed,
    )
    steps = plan_requests(_texts(arguments), plan)
    if (missing := vllm_missing()) is not None:
        progress(f"nothing measured: {missing}")
        return False
    flags = ("--enable-prompt-tokens-details", "--max-num-batched-tokens", str(arguments.pass_tokens))
    with launch(vllm_spec(EngineOptions(cores=CORES, extra=flags))) as server:
        progress(f"vLLM ready after {server.startup_s:.0f} s")
        tokenizer = ("--tokenizer", str(TOKENIZER)) if TOKENIZER.is_file() else ()
        record_plan(steps, server.base_url, traces, model=SERVED_NAME, flags=tokenizer, report=progress)
    load, cores = os.getloadavg()[0], count_cores(CORES)
    if load > cores + 1:
        progress(f"the machine is shared: load {load:.1f} on {cores} cores, so the error includes other people's work")
    return True


def _texts(arguments: argparse.Namespace) -> list[str]:
    """Real texts where there are any; else the mock's."""
    chosen = [document.text for document in read_documents(arguments.texts) if document.source in LONG_SOURCES]
    if not chosen:
        progress("no real texts: the mock's text is sent")
        return [BUILT_IN_TEXT]
    step = max(1, len(chosen) // TEXTS_USED)
    return chosen[::step][:TEXTS_USED]


def _fit_options(arguments: argparse.Namespace) -> FitOptions:
    return FitOptions(engine=Engine(arguments.pass_tokens))


def _show_by_pace(trace: Path, found: Calibration) -> None:
    """Held-out error of requests that met a busy server, and of those that did not."""
    rows = []
    for met, name in ((False, "met an idle server"), (True, "met a busy server")):
        chosen = found.held_out & (found.overlapping == met)
        observed, predicted = found.observed_ms[chosen], found.predicted_ms[chosen]
        if observed.size:
            errors = sorted(abs(observed - predicted) / observed)
            rows.append((name, observed.size, f"{errors[len(errors) // 2]:.1%}", f"{float(observed.mean()):.0f} ms"))
    show_table(f"Held-out requests of {trace.stem}", ("requests that", "n", "median error", "mean TTFT"), rows)


if __name__ == "__main__":
    raise SystemExit(main())
