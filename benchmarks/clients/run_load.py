"""``kvmend bench run-load``: the client under test."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from benchmarks.clients.client import Client, Figures, number
from benchmarks.clients.load import Load, Target
from benchmarks.corpus import TOKENIZER
from benchmarks.documents import ROOT

NAME = "run-load"
_OUTPUT = "load.json"


def _command(load: Load, target: Target, folder: Path) -> list[str]:
    return [
        *(sys.executable, "-m", "sembench", "run-load", "--base-url", target.url, "--model", target.model),
        *("--endpoint", "completions", "--output", str(folder / _OUTPUT), "--ignore-eos"),
        *("--concurrency", str(load.concurrency), "--requests", str(load.requests), "--warm-up", str(load.warm_up)),
        *("--prompt-tokens", str(load.prompt_tokens), "--max-tokens", str(load.output_tokens)),
        *("--tokenizer", str(TOKENIZER), "--seed", str(load.seed)),
    ]


def _read(folder: Path) -> Figures:
    result = json.loads((folder / _OUTPUT).read_text())
    requests, latency, throughput = result["requests"], result["latency_ms"], result["throughput"]
    ttft, tpot = latency["ttft"] or {}, latency["tpot"] or {}
    return Figures(
        ok=requests["ok"],
        errors=requests["sent"] - requests["ok"],
        ttft_p50_ms=number(ttft["p50"]["value"]) if ttft else None,
        ttft_p90_ms=number(ttft["p90"]["value"]) if ttft else None,
        ttft_mean_ms=number(ttft.get("mean")),
        tpot_p50_ms=number(tpot["p50"]["value"]) if tpot else None,
        requests_per_s=number(throughput["requests_per_s"]),
        output_tokens_per_s=number(throughput["output_tokens_per_s"]),
    )


CLIENT = Client(NAME, _command, _read, environment={"PYTHONPATH": str(ROOT / "src")})
