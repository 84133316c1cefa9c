"""How much a known model must recompute to keep its answers: a real vLLM server, measured by its own command.

``python -m benchmarks.answers.budgets --model NAME``. The file goes to ``results/budgets-NAME``; with ``--install`` it
goes into the model's folder as well, where every later server finds it. The same command continues an interrupted run.
"""

from __future__ import annotations

import argparse
import shutil

from scripts.engines.specs import EngineOptions, native_dtype, semblend_flags, vllm_missing, vllm_spec
from scripts.models.known import MODELS, SMOLLM2

from benchmarks.answers.__main__ import HOST_BYTES
from benchmarks.console import RESULTS, progress
from benchmarks.documents import ROOT
from benchmarks.e2e import steps
from benchmarks.equal_threads import launch
from sembench.cli.answer_budgets import SERVER_OPTIONS
from sembench.live.answer_budgets import ITEMS, LENGTHS
from sembench.replay.partial import partial_path
from semblend.contract.answer_budgets import FILE_NAME


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.answers.budgets", description=__doc__)
    parser.add_argument("--model", choices=list(MODELS), default=SMOLLM2.name, help="default: %(default)s")
    parser.add_argument("--items", type=int, default=ITEMS, help="items per class (default: %(default)s)")
    parser.add_argument("--lengths", type=int, nargs="+", default=list(LENGTHS), help="default: %(default)s")
    parser.add_argument("--fractions", nargs="+", help="default: those of the command")
    parser.add_argument("--classes", nargs="+", help="default: all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cores", help="bind the server to these, such as 0 (default: both)")
    parser.add_argument("--name", help="results are kept in a folder of that name (default: the model's)")
    parser.add_argument("--install", action="store_true", help="put the file into the model's folder, too")
    arguments = parser.parse_args()
    model = MODELS[arguments.model]
    if (missing := vllm_missing(model)) is not None:
        progress(f"nothing measured: {missing}")
        return 3
    folder = RESULTS / f"budgets-{arguments.name or arguments.model}"
    folder.mkdir(parents=True, exist_ok=True)
    output = folder / FILE_NAME
    flags = semblend_flags({**SERVER_OPTIONS["vllm"], "host_bytes": HOST_BYTES})
    options = EngineOptions(
        model=model,
        extra=("--enable-prompt-tokens-details", "--max-model-len", str(2 * max(arguments.lengths)), *flags),
        environment={"PYTHONPATH": str(ROOT / "src")},
        kv_cache_gib=1,
        cores=arguments.cores or "0-1",
        dtype=native_dtype(),
    )
    with launch(vllm_spec(options)) as server:
        progress(f"server ready after {server.startup_s or 0:.0f} s")
        steps.sembench(
            "answer-budgets",
            *("--gateway-url", server.base_url, "--model-dir", str(model.folder), "--output", str(output)),
            *("--items", str(arguments.items), "--lengths", *map(str, arguments.lengths)),
            *("--seed", str(arguments.seed), "--keep-rows", str(folder / "rows.jsonl")),
            *(("--fractions", *arguments.fractions) if arguments.fractions else ()),
            *(("--classes", *arguments.classes) if arguments.classes else ()),
            *(("--resume",) if partial_path(output).exists() else ()),
        )
    if arguments.install:
        shutil.copyfile(output, model.folder / FILE_NAME)
    progress(f"answer budgets in {output.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
