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
from semblend.doctor.gpu.faults import Fault, planted
from semblend.doctor.gpu.tiny_model import VOCABULARY, Piece, TinyModel
from semblend.doctor.serve_command import VLLM, ServeCommand
from semblend.doctor.vllm_check import parse_flags
from semblend.integration.vllm.flags import transfer_config
from semblend.integration.vllm.support import WORKER_CLASS

HEAD, DOCUMENT, TAIL, GAP = 40, 300, 20, 50
NEIGHBOURS: Final = (30, 50, 70)
ANSWER: Final = 8
MAX_SHORT_REQUESTS: Final = 50  # a donor is registered one or two steps after its copy
# Everything the planner offers is reused, nothing at boundaries is recomputed: the hand-made blend is the same.
OPEN_GATES: Final = {
    "boundary_recompute_tokens": 0,
    "recompute_fraction": 0.0,
    "max_context_share": 1.0,
    "refresh_on_repeat": False,
    "prefill_passages": False,
}
# An answer may be this many times further from its fp32 reference than the engine's cold answer is from its own.
ALLOWED: Final = 3.0
FLOOR: Final = 1e-4

Result = dict[str, Any]


class Engine:
    """The real engine with our connector, asked one prompt at a time."""

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        self._llm = load_target("vllm:LLM")(**arguments)
        self._params = load_target("vllm:SamplingParams")
        core = self._llm.llm_engine.engine_core.engine_core
        self.config = core.vllm_config
        self.runner = core.model_executor.driver_worker.worker.model_runner
        self.connector = load_target("vllm.distributed.kv_transfer:get_kv_transfer_group")()
        self._donors = core.scheduler.connector._half.donors
        self._asked = 0

    def state(self) -> dict[str, Any]:
        group = self.runner.attn_groups[0][0]
        return {
            "backend": group.backend.get_name(),
            "model_runner": type(self.runner).__module__,
            "async_scheduling": bool(self.config.scheduler_config.async_scheduling),
            "block_size": int(self.config.cache_config.block_size),
            "eager": bool(self.config.model_config.enforce_eager),
            "dtype": str(self.config.model_config.dtype).removeprefix("torch."),
        }

    def forget(self) -> None:
        """Empty the exact prefix cache; donors stay."""
        self._llm.reset_prefix_cache()

    def capture(self, prompt: Sequence[int]) -> None:
        """Serve ``prompt``, then short requests until the scheduler has registered it as a donor."""
        before = len(self._donors)
        self.forget()
        self.ask(prompt)
        for _ in range(MAX_SHORT_REQUESTS):
            self.ask(_tokens(random.Random(self._asked), 8), reuse=False)
            if len(self._donors) > before:
                return
        raise RuntimeError(f"a prompt of {len(prompt)} tokens did not become a donor")

    def params(self, *, reuse: bool, answer: int, logprobs: int) -> Any:
        return self._params(
            max_tokens=answer,
            temperature=0,
            logprobs=logprobs,
            detokenize=False,
            ignore_eos=True,
            extra_args={"kv_transfer_params": {"semblend": {"reuse": reuse, "capture": reuse}}},
        )

    def ask(
        self, prompt: Sequence[int], *, reuse: bool = True, answer: int = 1, logprobs: int = 0
    ) -> tuple[dict[str, Any], Any]:
        """The provenance and the completion."""
        self._asked += 1
        params = self.params(reuse=reuse, answer=answer, logprobs=logprobs)
        (got,) = self._llm.generate([{"prompt_token_ids": list(prompt)}], params, use_tqdm=False)
        return dict((got.kv_transfer_params or {}).get("semblend") or {}), got.outputs[0]

    def first_logprobs(self, prompt: Sequence[int], *, reuse: bool = True) -> tuple[dict[str, Any], list[float]]:
        self.forget()
        provenance, completion = self.ask(prompt, reuse=reuse, logprobs=VOCABULARY)
        first = completion.logprobs[0]
        return provenance, [float(first[token].logprob) for token in range(VOCABULARY)]

    def together(self, prompts: Sequence[Sequence[int]], late: Sequence[int], *, reuse: bool) -> tuple[list[Any], int]:
        """Completions of ``prompts``, while ``late`` is admitted after some of their steps; tokens ``late`` reused."""
        self.forget()
        engine = self._llm.llm_engine
        self._asked += 1
        params = self.params(reuse=False, answer=ANSWER, logprobs=1)
        ids = [
            engine.add_request(f"neighbour-{self._asked}-{number}", {"prompt_token_ids": list(prompt)}, params)
            for number, prompt in enumerate(prompts)
        ]
        done: dict[str, Any] = {}
        reused, steps = 0, 0
        while engine.has_unfinished_requests():
            for output in engine.step():
                if output.finished:
                    done[output.request_id] = output.outputs[0]
                    provenance = (output.kv_transfer_params or {}).get("semblend") or {}
                    reused = max(reused, int(provenance.get("reused_tokens") or 0))
            steps += 1
            if steps == 3:
                params = self.params(reuse=reuse, answer=ANSWER, logprobs=1)
                engine.add_request(f"late-{self._asked}", {"prompt_token_ids": list(late)}, params)
        completions = [done.get(name) or done[f"neighbour-{self._asked}-{number}"] for number, name in enumerate(ids)]
        return completions, reused


# -- the engine against blends made by hand --------------------------------------------------------------------------


def correctness(request: Mapping[str, Any]) -> dict[str, Result]:
    """Steps ``blend``, ``gaps``, ``faults`` and ``neighbours``, on a tiny random model."""
    model = TinyModel()
    with tempfile.TemporaryDirectory() as folder:
        engine = Engine(_tiny_arguments(model.save(Path(folder)), request))
        draws = random.Random(1)
        head, document, tail, other = (_tokens(draws, size) for size in (HEAD, DOCUMENT, TAIL, GAP))
        cold_moved = model.cold([*head, *document, *tail])
        _, cold = engine.first_logprobs([*head, *document, *tail], reuse=False)
        noise = _distance(cold, cold_moved)
        limit = max(ALLOWED * noise, FLOOR)
        engine.capture(document)
        results = {"blend": _blend(engine, model, head, document, tail, limit, noise)}
        if request.get("only_blend"):
            return results
        results["gaps"] = _gaps(engine, model, (head, document, tail, other), limit)
        results["faults"] = _faults(engine, [*head, *document, *tail], cold_moved, limit)
        results["neighbours"] = _neighbours(engine, draws, [*head, *document, *tail], noise)
        return results


def _blend(
    engine: Engine, model: TinyModel, head: list[int], document: list[int], tail: list[int], limit: float, noise: float
) -> Result:
    provenance, got = engine.first_logprobs([*head, *document, *tail])
    expected = model.blend([Piece(head), Piece(document, document), Piece(tail)])
    error, distance = _distance(got, expected), _distance(expected, model.cold([*head, *document, *tail]))
    figures = {
        **engine.state(),
        **_counts(provenance),
        "error": error,
        "limit": limit,
        "cold_error": noise,
        "blend_against_cold": distance,
    }
    if provenance.get("reused_tokens") != len(document):
        return _failed(f"reused {provenance.get('reused_tokens')} of {len(document)} tokens: {provenance}", figures)
    if distance <= ALLOWED * limit:
        return _failed("the reference cannot tell a blend from a cold answer", figures)
    return _judged(error <= limit, "the answer is not the blend made by hand", figures)


def _gaps(
    engine: Engine,
    model: TinyModel,
    parts: tuple[list[int], list[int], list[int], list[int]],
    limit: float,
) -> Result:
    head, document, tail, other = parts
    first, second = document[:130], document[150:]
    provenance, got = engine.first_logprobs([*head, *first, *other, *second, *tail])
    expected = model.blend(
        [Piece(head), Piece(first, document), Piece(other), Piece(second, document, 150), Piece(tail)]
    )
    figures = {**_counts(provenance), "error": _distance(got, expected), "limit": limit}
    if provenance.get("reused_tokens") != len(first) + len(second):
        return _failed(f"reused {provenance.get('reused_tokens')} tokens: {provenance}", figures)
    return _judged(figures["error"] <= limit, "the answer is not the blend made by hand", figures)


def _faults(engine: Engine, prompt: list[int], cold: list[float], limit: float) -> Result:
    """Every planted fault must give the cold answer, and nothing may be called reused."""
    figures: dict[str, Any] = {"limit": limit}
    wrong = []
    for fault in Fault:
        with planted(engine.connector, fault) as store:
            provenance, got = engine.first_logprobs(prompt)
        error = _distance(got, cold)
        figures[f"{fault}_error"] = error
        if not store.reads:
            wrong.append(f"{fault}: the planted store was not read")
        elif error > limit or provenance.get("reused_tokens"):
            wrong.append(f"{fault}: error {error:.2g}, {provenance.get('reused_tokens')} tokens called reused")
    return _judged(not wrong, "; ".join(wrong), figures)


def _neighbours(engine: Engine, draws: random.Random, prompt: list[int], noise: float) -> Result:
    """Requests that decode while a blended one is admitted, against the same with that request cold."""
    prompts = [_tokens(draws, size) for size in NEIGHBOURS]
    beside_cold, _ = engine.together(prompts, prompt, reuse=False)
    beside_blend, reused = engine.together(prompts, prompt, reuse=True)
    differences = [_difference(*pair) for pair in zip(beside_cold, beside_blend, strict=True)]
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
    engine = Engine(arguments)
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
    figures = {**engine.state(), "rows": rows}
    if not measured:
        return {"ttft": _failed("no size fits the server's maximum length", figures)}
    without = [row["tokens"] for row in measured if not row["reused_tokens"]]
    return {"ttft": _judged(not without, f"nothing was reused at {without} tokens", figures)}


def _measure(engine: Engine, size: int, repeats: int, vocabulary: int) -> dict[str, Any]:
    draws = random.Random(size)
    times: dict[str, list[float]] = {"cold": [], "exact": [], "blended": []}
    reused, kls, outcomes = [], [], set()
    for _ in range(repeats + 1):
        head, tail = _tokens(draws, max(size // 20, 8), vocabulary), _tokens(draws, 8, vocabulary)
        document = _tokens(draws, size - len(head) - len(tail), vocabulary)
        engine.capture(document)
        engine.forget()
        prompt = [*head, *document, *tail]
        blended_ms, (provenance, blended) = _timed(engine, prompt, reuse=True)
        engine.forget()
        cold_ms, (_, cold) = _timed(engine, prompt, reuse=False)
        exact_ms, _ = _timed(engine, prompt, reuse=False)
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


def _timed(engine: Engine, prompt: list[int], *, reuse: bool) -> tuple[float, tuple[dict[str, Any], Any]]:
    began = time.perf_counter()
    answer = engine.ask(prompt, reuse=reuse, logprobs=20)
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
        "sync_check": _can_check_syncs(platform),
    }
    return {"machine": _judged(True, "", figures)}


def _can_check_syncs(platform: Any) -> str:
    """Empty if vLLM can report synchronisations here, else why it cannot."""
    try:
        load_target("vllm.envs:VLLM_GPU_SYNC_CHECK")
    except AttributeError:
        return "this vLLM has no VLLM_GPU_SYNC_CHECK"
    return "" if platform.is_cuda_alike() else f"vLLM checks it on CUDA and ROCm only, this is {platform.device_type}"


def _optional(query: Any) -> str:
    try:
        return str(query())
    except Exception:  # noqa: BLE001 - a platform that cannot say is not an obstacle
        return "unknown"


# -- shared ----------------------------------------------------------------------------------------------------------


def _tiny_arguments(folder: Path, request: Mapping[str, Any]) -> dict[str, Any]:
    options = {**OPEN_GATES, **request.get("options", {})}
    return {
        "model": str(folder),
        "skip_tokenizer_init": True,
        "enforce_eager": bool(request.get("eager", True)),
        "dtype": request["dtype"],
        "max_model_len": 1024,
        "max_num_batched_tokens": 1024,
        "max_num_seqs": 16,
        "max_logprobs": VOCABULARY,
        "gpu_memory_utilization": 0.3,
        "num_gpu_blocks_override": 800,
        "worker_cls": WORKER_CLASS,
        "kv_transfer_config": transfer_config(options),
    }


def _tokens(draws: random.Random, count: int, vocabulary: int = VOCABULARY) -> list[int]:
    return [draws.randrange(3, vocabulary) for _ in range(count)]


def _distance(one: Sequence[float], other: Sequence[float]) -> float:
    return max(abs(left - right) for left, right in zip(one, other, strict=True))


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
