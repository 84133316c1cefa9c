"""GuideLLM, from an environment of its own, with a file of prompts and a local tokenizer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from scripts.models.known import SMOLLM2
from scripts.private_venv import VenvRecipe, ensure_venv, folder_of

from benchmarks.clients.client import Client, Figures, number
from benchmarks.clients.load import Load, Target

NAME = "guidellm"
RECIPE = VenvRecipe("rivals/guidellm", packages=("torch==2.13.0", "guidellm==0.8.1"))
PROGRAM = folder_of(RECIPE) / "bin" / "guidellm"
_PROMPTS, _OUTPUT = "prompts.jsonl", "guidellm.json"


def install() -> None:
    ensure_venv(RECIPE)


def client(program: Path = PROGRAM) -> Client:
    def missing() -> str | None:
        return (
            None
            if program.is_file()
            else f"no guidellm at {program}; --install makes it, --guidellm FILE names another"
        )

    def command(load: Load, target: Target, folder: Path) -> list[str]:
        return [str(program), "run", *_arguments(load, target, folder)]

    return Client(NAME, command, _read, missing, {"GUIDELLM__LOGGING__CONSOLE_LOG_LEVEL": "WARNING"})


def _arguments(load: Load, target: Target, folder: Path) -> list[str]:
    """An output length in the data makes it send ``ignore_eos``. Its warm-up is the first requests of the load."""
    texts = [*load.warm_up_prompts(), *load.prompts()]
    lines = [json.dumps({"prompt": text, "output_tokens_count": load.output_tokens}) for text in texts]
    (folder / _PROMPTS).write_text("\n".join(lines) + "\n")
    backend = {
        "kind": "openai_http",
        "target": target.url,
        "model": target.model,
        "request_format": "/v1/completions",
        "extras": {"body": {"temperature": 0.0, "seed": 0}},
    }
    profile: dict[str, Any] = {"kind": "concurrent", "streams": [load.concurrency]}
    if load.warm_up:
        profile["warmup"] = {"value": load.warm_up, "mode": "requests"}
    options = {
        "--backend": backend,
        "--profile": profile,
        "--constraint": {"kind": "max_requests", "count": len(texts)},
        "--data": {"kind": "json_file", "path": str(folder / _PROMPTS)},
        "--tokenizer": {"kind": "hf_auto", "model": str(SMOLLM2.folder)},
        "--output": {"kind": "json", "path": str(folder / _OUTPUT)},
    }
    return [*(word for option, value in options.items() for word in (option, json.dumps(value))), "--disable-console"]


def _read(folder: Path) -> Figures:
    """What it calls time per output token has the first token in it; its inter-token latency is the TPOT of others."""
    metrics = json.loads((folder / _OUTPUT).read_text())["benchmarks"][0]["metrics"]
    totals = metrics["request_totals"]
    ok = totals["successful"]
    ttft, itl = (metrics[name]["successful"] for name in ("time_to_first_token_ms", "inter_token_latency_ms"))
    return Figures(
        ok=ok,
        errors=totals["errored"] + totals["incomplete"],
        ttft_p50_ms=number(ttft["median"]) if ok else None,
        ttft_p90_ms=number(ttft["percentiles"]["p90"]) if ok else None,
        ttft_mean_ms=number(ttft["mean"]) if ok else None,
        tpot_p50_ms=number(itl["median"]) if ok else None,
        requests_per_s=number(metrics["requests_per_second"]["successful"]["mean"]),
        output_tokens_per_s=number(metrics["output_tokens_per_second"]["successful"]["mean"]),
    )
