"""One step of the proof, in the engine's interpreter: ``python -m semblend.doctor.gpu.scenario NAME REQUEST``.

REQUEST is a JSON object. Prints ``RESULT`` and a JSON object of step results (``passed``, ``detail``, ``figures``) by
name. The engine runs inside this process (the caller sets ``VLLM_ENABLE_V1_MULTIPROCESSING=0``), so that faults can be
planted and the attention backend is known.
"""

from __future__ import annotations

import json
import math
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from sembase.registry import load_target
from sembase.streams import write_err, write_out
from semblend.doctor.gpu.driven_engine import (
    CAPTURE,
    COLD,
    OPEN_GATES,
    DrivenEngine,
    distance,
    random_tokens,
    tiny_arguments,
)
from semblend.doctor.gpu.faults import Fault, planted
from semblend.doctor.gpu.tiny_model import Piece, TinyModel
from semblend.doctor.serve_command import VLLM, ServeCommand
from semblend.doctor.vllm_check import parse_flags

HEAD, DOCUMENT, TAIL, GAP = 40, 300, 20, 50
NEIGHBOURS: Final = (30, 50, 70)
ANSWER: Final = 8
# An answer may be this many times further from its fp32 reference than the engine's cold answer is from its own.
ALLOWED: Final = 3.0
FLOOR: Final = 1e-4

Result = dict[str, Any]


# -- the engine against blends made by hand --------------------------------------------------------------------------


def correctness(request: Mapping[str, Any]) -> dict[str, Result]:
    """Steps ``blend``, ``gaps``, ``faults`` and ``neighbours``, on a tiny random model."""
    model = TinyModel()
    with tempfile.TemporaryDirectory() as folder:
        options = {**OPEN_GATES, **request.get("options", {})}
        engine = DrivenEngine(
            tiny_arguments(
                model.save(Path(folder)),
                options,
                enforce_eager=bool(request.get("eager", True)),
                dtype=request["dtype"],
                max_num_seqs=16,
                gpu_memory_utilization=0.3,
            )
        )
        draws = random.Random(1)
        head, document, tail, other = (random_tokens(draws, size) for size in (HEAD, DOCUMENT, TAIL, GAP))
        cold_moved = model.cold([*head, *document, *tail])
        _, cold, _ = engine.first_logprobs([*head, *document, *tail], COLD)
        noise = distance(cold, cold_moved)
        limit = max(ALLOWED * noise, FLOOR)
        engine.capture(document)
        return {
            "blend": _blend(engine, model, head, document, tail, limit, noise),
            "gaps": _gaps(engine, model, (head, document, tail, other), limit),
            "faults": _faults(engine, [*head, *document, *tail], cold_moved, limit),
            "neighbours": _neighbours(engine, draws, [*head, *document, *tail], noise),
        }


def _blend(
    engine: DrivenEngine,
    model: TinyModel,
    head: list[int],
    document: list[int],
    tail: list[int],
    limit: float,
    noise: float,
) -> Result:
    provenance, got, _ = engine.first_logprobs([*head, *document, *tail], CAPTURE)
    expected = model.blend([Piece(head), Piece(document, document), Piece(tail)])
    error, from_cold = distance(got, expected), distance(expected, model.cold([*head, *document, *tail]))
    figures = {
        **_state(engine),
        **_counts(provenance),
        "error": error,
        "limit": limit,
        "cold_error": noise,
        "blend_against_cold": from_cold,
    }
    if provenance.get("reused_tokens") != len(document):
        return _failed(f"reused {provenance.get('reused_tokens')} of {len(document)} tokens: {provenance}", figures)
    if from_cold <= ALLOWED * limit:
        return _failed("the reference cannot tell a blend from a cold answer", figures)
    return _judged(error <= limit, "the answer is not the blend made by hand", figures)


def _gaps(
    engine: DrivenEngine,
    model: TinyModel,
    parts: tuple[list[int], list[int], list[int], list[int]],
    limit: float,
) -> Result:
    head, document, tail, other = parts
    first, second = document[:130], document[150:]
    provenance, got, _ = engine.first_logprobs([*head, *first, *other, *second, *tail], CAPTURE)
    expected = model.blend(
        [Piece(head), Piece(first, document), Piece(other), Piece(second, document, 150), Piece(tail)]
    )
    figures = {**_counts(provenance), "error": distance(got, expected), "limit": limit}
    if provenance.get("reused_tokens") != len(first) + len(second):
        return _failed(f"reused {provenance.get('reused_tokens')} tokens: {provenance}", figures)
    return _judged(figures["error"] <= limit, "the answer is not the blend made by hand", figures)


def _faults(engine: DrivenEngine, prompt: list[int], cold: list[float], limit: float) -> Result:
    """Every planted fault must give the cold answer, and nothing may be called reused."""
    figures: dict[str, Any] = {"limit": limit}
    wrong = []
    for fault in Fault:
        with planted(engine.connector, fault) as store:
            provenance, got, _ = engine.first_logprobs(prompt, CAPTURE)
        error = distance(got, cold)
        figures[f"{fault}_error"] = error
        if not store.reads:
            wrong.append(f"{fault}: the planted store was not read")
        elif error > limit or provenance.get("reused_tokens"):
            wrong.append(f"{fault}: error {error:.2g}, {provenance.get('reused_tokens')} tokens called reused")
    return _judged(not wrong, "; ".join(wrong), figures)


def _neighbours(engine: DrivenEngine, draws: random.Random, prompt: list[int], noise: float) -> Result:
    """Requests that decode while a blended one is admitted, against the same with that request cold."""
    prompts = [random_tokens(draws, size) for size in NEIGHBOURS]
    beside_cold, beside_blend = (engine.together(prompts, prompt, hints, answer=ANSWER) for hints in (COLD, CAPTURE))
    reused = int(beside_blend.provenance.get("reused_tokens") or 0)
    pairs = zip(beside_cold.completions, beside_blend.completions, strict=True)
    differences = [_difference(*pair) for pair in pairs]
    limit = max(ALLOWED * noise, FLOOR)
    figures = {"requests": len(prompts), "reused_tokens": reused, "error": max(differences), "limit": limit}
    if not reused:
        return _failed("the late request reused nothing", figures)
    return _judged(max(differences) <= limit, "a neighbour's answer changed", figures)


def _difference(one: Any, other: Any) -> float:
    """Largest difference of the chosen tokens' log-probabilities, up to where the answers part."""
    largest = 0.0
    for number, (left, right) in enumerate(zip(one.token_ids, other.token_ids, strict=True)):
        largest = max(largest, abs(one.logprobs[number][left].logprob - other.logprobs[number][right].logprob))
        if left != right:
            break
    return largest


# -- time to first token ---------------------------------------------------------------------------------------------


def ttft(request: Mapping[str, Any]) -> dict[str, Result]:
    """Step ``ttft``: the user's model and flags; cold, exact and blended prompts of several sizes."""
    parsed = parse_flags(ServeCommand(VLLM, request["model"], tuple(request["flags"])))
    arguments = vars(load_target("vllm.engine.arg_utils:EngineArgs").from_cli_args(parsed))
    arguments |= {"skip_tokenizer_init": True, "max_logprobs": max(20, arguments.get("max_logprobs") or 0)}
    engine = DrivenEngine(arguments)
    longest = int(engine.config.model_config.max_model_len)
    vocabulary = int(engine.config.model_config.get_vocab_size())
    rows = []
    for size in request["sizes"]:
        if size + 2 > longest:
            rows.append({"tokens": size, "skipped": f"the server's maximum length is {longest}"})
            continue
        rows.append(_measure(engine, size, int(request["repeats"]), vocabulary))
        write_err(f"ttft {size}: {json.dumps(rows[-1])}\n")
    measured = [row for row in rows if "cold_ms" in row]
    figures = {**_state(engine), "rows": rows}
    if not measured:
        return {"ttft": _failed("no size fits the server's maximum length", figures)}
    without = [row["tokens"] for row in measured if not row["reused_tokens"]]
    return {"ttft": _judged(not without, f"nothing was reused at {without} tokens", figures)}


def _measure(engine: DrivenEngine, size: int, repeats: int, vocabulary: int) -> dict[str, Any]:
    draws = random.Random(size)
    times: dict[str, list[float]] = {"cold": [], "exact": [], "blended": []}
    reused, kls, outcomes = [], [], set()
    for _ in range(repeats + 1):
        head, tail = random_tokens(draws, max(size // 20, 8), vocabulary), random_tokens(draws, 8, vocabulary)
        document = random_tokens(draws, size - len(head) - len(tail), vocabulary)
        engine.capture(document)
        engine.forget()
        prompt = [*head, *document, *tail]
        blended_ms, (provenance, blended) = _timed(engine, prompt, CAPTURE)
        engine.forget()
        cold_ms, (_, cold) = _timed(engine, prompt, COLD)
        exact_ms, _ = _timed(engine, prompt, COLD)
        for name, value in (("cold", cold_ms), ("exact", exact_ms), ("blended", blended_ms)):
            times[name].append(value)
        reused.append(int(provenance.get("reused_tokens") or 0))
        outcomes.add(str(provenance.get("outcome")))
        kls.append(_kl(cold.logprobs[0], blended.logprobs[0]))
    return {
        "tokens": size,
        "repeats": repeats,
        "reused_tokens": min(reused[1:]),
        "outcomes": sorted(outcomes),
        **{f"{name}_ms": round(statistics.median(each[1:]), 3) for name, each in times.items()},  # the first warms up
        **{f"{name}_all_ms": [round(value, 3) for value in each[1:]] for name, each in times.items()},
        "mean_kl_top20": statistics.mean(kls[1:]),
    }


def _timed(
    engine: DrivenEngine, prompt: list[int], hints: Mapping[str, Any]
) -> tuple[float, tuple[dict[str, Any], Any]]:
    began = time.perf_counter()
    answer = engine.ask(prompt, hints, logprobs=20)
    return (time.perf_counter() - began) * 1e3, answer


def _kl(cold: Any, other: Any) -> float:
    """KL over the tokens both list, a lower bound by the log-sum inequality up to what is not listed."""
    both = set(cold) & set(other)
    return max(math.fsum(math.exp(cold[t].logprob) * (cold[t].logprob - other[t].logprob) for t in both), 0.0)


# -- the machine -----------------------------------------------------------------------------------------------------


def machine(request: Mapping[str, Any]) -> dict[str, Result]:
    """Step ``machine``: what the engine runs on. ``request`` is not used."""
    del request
    torch, platform = load_target("torch:version"), load_target("vllm.platforms:current_platform")
    figures = {
        "device_type": str(platform.device_type),
        "device": _optional(platform.get_device_name),
        "capability": _optional(platform.get_device_capability),
        "memory_bytes": _optional(platform.get_device_total_memory),
        "torch": str(load_target("torch:__version__")),
        "cuda": str(torch.cuda),
        "hip": str(torch.hip),
        "vllm": str(load_target("vllm:__version__")),
    }
    return {"machine": _judged(True, "", figures)}


def _optional(query: Any) -> str:
    try:
        return str(query())
    except Exception:  # noqa: BLE001 - a platform that cannot say is not an obstacle
        return "unknown"


# -- shared ----------------------------------------------------------------------------------------------------------


def _state(engine: DrivenEngine) -> dict[str, Any]:
    config = engine.config
    return {
        "backend": engine.runner.attn_groups[0][0].backend.get_name(),
        "model_runner": type(engine.runner).__module__,
        "async_scheduling": bool(config.scheduler_config.async_scheduling),
        "block_size": int(config.cache_config.block_size),
        "eager": bool(config.model_config.enforce_eager),
        "dtype": str(config.model_config.dtype).removeprefix("torch."),
    }


def _counts(provenance: Mapping[str, Any]) -> dict[str, Any]:
    return {name: provenance.get(name) for name in ("outcome", "reused_tokens", "computed_tokens")}


def _judged(holds: bool, detail: str, figures: Mapping[str, Any]) -> Result:
    return {"passed": bool(holds), "detail": "" if holds else detail, "figures": dict(figures)}


def _failed(detail: str, figures: Mapping[str, Any]) -> Result:
    return _judged(False, detail, figures)


SCENARIOS: Final = {"machine": machine, "correctness": correctness, "ttft": ttft}


def main(words: Sequence[str]) -> int:
    results = SCENARIOS[words[0]](json.loads(words[1]))
    write_out("\nRESULT " + json.dumps(results) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
