"""Run architecture variants in the real SGLang, one process each: names (none: all of them) in, a table out.

Run by the engine's interpreter. SGLang is imported once and every variant gets a fork of that process, in which the
engine's own scheduler loads the model with random weights and builds our cache. Exits 1 if a variant is served or
refused otherwise than expected, if a planted wrong rotation passes, or if moved KV gives other answers.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from tests.engines.sglang.inside import FLAGS, engine_module, import_engine, start_scheduler, write_model

LIMIT_S: Final = 300
HEAD, DOCUMENT, TAIL = 40, 160, 20
FP32_ERROR: Final = 1e-3  # of a log-probability; in bf16 a fraction of what reuse itself changes
BF16_FRACTION: Final = 0.25
# What SGLang reads from published configurations and Transformers does not write.
PUBLISHED: Final[dict[str, dict[str, Any]]] = {
    "gemma-2": {"hidden_act": "gelu_pytorch_tanh"},
    "phi-4-mini": {"partial_rotary_factor": 0.75},
    "deepseek-v3": {"moe_layer_freq": 1},
}
# Why SGLang itself does not start, or why we refuse; every other variant is served.
NOT_SERVED: Final = {
    "gemma-2": "0 active drivers",
    "phi-4-mini": "K at another position is not a rotation of K",
    "olmo-3": "has no attribute 'max_position_embeddings'",
    "deepseek-v2": "SGLang: AssertionError",
    "gemma-3n": "unsupported operand",
    "gemma-4": "per-layer attribute",
    "llama-fp8-kv": "A KV cache kept as torch.float8_e5m2",
    "gpt-oss": "requires one of",
    "exaone-4": "is required for Exaone4ForCausalLM",
    "bloom": "no SGlang implementation",
    "falcon-h1": "extra_buffer requires platform support",
    "minimax-m2": "AssertionError",
    "olmoe": "Expected hidden_size",
    "smollm-3": "attention layers are not those of the KV pool",
    "seed-oss": "attention layers are not those of the KV pool",
    "nemotron": "attention layers are not those of the KV pool",
    "ernie-4.5": "attention layers are not those of the KV pool",
    "ministral-3": "llama_4_scaling",
    "mistral-scaled": "llama_4_scaling",
    "llama-4": "chunked local attention",
    "hunyuan": "depends on the position",
    "gpt-2": "reversed tokens do not give reversed V",
    "opt": "reversed tokens do not give reversed V",
}


@dataclass(kw_only=True)
class Outcome:
    """What became of one variant. Errors of layers are in units of their limits; others of log-probabilities."""

    name: str
    served: bool = False
    reason: str = ""
    layers: list[dict[str, Any]] = field(default_factory=list)
    wrong_caught: int = 0
    wrong_planted: int = 0
    moved_error: float = 0.0  # against KV computed by the model itself at the later positions
    reuse_changes: float = 0.0  # against a cold answer: shows that the comparison can tell
    dtype: str = "float32"
    seconds: float = 0.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--out", type=Path, help="file to which outcomes are appended, one JSON object per line")
    arguments = parser.parse_args()
    import_engine()
    from tests.engines.model_matrix.variants import VARIANTS

    engine_module("models.registry").ModelRegistry.get_supported_archs()  # the forks find it imported
    outcomes = []
    for name in arguments.names or [variant.name for variant in VARIANTS]:
        outcomes.append(_forked(name))
        if arguments.out is not None:
            with arguments.out.open("a", encoding="utf-8") as lines:
                lines.write(json.dumps(asdict(outcomes[-1])) + "\n")
    faults = [f"{outcome.name}: {fault}" for outcome in outcomes for fault in faults_of(outcome)]
    print(table(outcomes))
    print("RESULT " + json.dumps({"faults": faults, "outcomes": [asdict(outcome) for outcome in outcomes]}))
    return 1 if faults else 0


def _forked(name: str) -> Outcome:
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="sglang-matrix-") as folder:
        result = Path(folder) / "outcome.json"
        child = os.fork()
        if child == 0:
            _child(name, Path(folder), result)
        status = _wait(child)
        if not result.exists():
            return Outcome(name=name, reason=f"the process ended with {status}")
        outcome = Outcome(**json.loads(result.read_text()))
    outcome.seconds = round(time.monotonic() - started, 1)
    print(f"{name} {outcome.seconds} s", file=sys.stderr, flush=True)
    return outcome


def _child(name: str, folder: Path, result: Path) -> None:
    log = os.open(folder / "log", os.O_WRONLY | os.O_CREAT)
    os.dup2(log, 1)
    os.dup2(log, 2)
    outcome = Outcome(name=name)
    try:
        _examine(name, folder, outcome)
    except Exception as error:  # noqa: BLE001 - the engine refuses in many ways; all of them are outcomes
        traceback.print_exc()
        outcome.served = False
        outcome.reason = outcome.reason or f"SGLang: {type(error).__name__}: {' '.join(str(error).split())[:200]}"
    result.write_text(json.dumps(asdict(outcome)))
    os._exit(0)


def _wait(child: int) -> str:
    end = time.monotonic() + LIMIT_S
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return f"status {os.waitstatus_to_exitcode(status)}"
        time.sleep(0.1)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return "a timeout"


def _examine(name: str, folder: Path, outcome: Outcome) -> None:
    from tests.engines.model_matrix.variants import by_name
    from tests.engines.model_matrix.weights import fill_randomly

    from semblend.integration.sglang import start

    variant = by_name(name)
    outcome.dtype = str(variant.engine.get("dtype", "float32"))
    published = {"dtype": outcome.dtype, **PUBLISHED.get(name, {})}
    write_model(folder, variant.model_type, variant.architecture, variant.settings, **published)
    kept = str(variant.engine.get("kv_cache_dtype", "auto")).replace("fp8", "fp8_e5m2")
    flags = ["--model-path", str(folder), *FLAGS, "--dtype", outcome.dtype, "--kv-cache-dtype", kept]
    proofs: list[Any] = []
    refusals: list[str] = []
    prove, log_disabled = start.prove, vars(start)["log_disabled"]

    def proving(context: Any) -> Any:
        proofs.append((context, prove(context)))
        return proofs[-1][1]

    def refusing(log: Any, reason: str) -> None:
        refusals.append(" ".join(reason.split()))
        log_disabled(log, reason)

    vars(start).update(prove=proving, log_disabled=refusing)
    start_scheduler(flags, fill_randomly)
    outcome.reason = "".join(refusals)
    if not refusals:
        (context, proof) = proofs[0]
        inside = _Inside(context, proof)
        outcome.layers = [_layer(layer) for layer in proof.layers]
        inside.plant(outcome)
        inside.move(outcome)
        outcome.served = True


def _layer(layer: Any) -> dict[str, Any]:
    rotation = layer.rotation
    kind = "none" if rotation.is_identity else f"{rotation.rotary_dim}{' interleaved' if rotation.interleaved else ''}"
    errors = {name: getattr(layer, f"{name}_error") for name in ("key", "output", "whole")}
    return {"rotation": kind, **errors}


class _Inside:
    """The served model and pool, and the copier of loads."""

    def __init__(self, context: Any, proof: Any) -> None:
        from semblend.integration.sglang.donor_kv import DonorCopier
        from semblend.integration.sglang.kv_pool import attention_layers
        from semblend.integration.sglang.self_test import ScratchModel

        self.runner, page = context.tp_worker.model_runner, context.params.page_size
        self.pool = context.params.token_to_kv_pool_allocator.get_kvcache()
        layers = attention_layers(self.runner.model, self.pool)
        self.rotations = proof.rotations
        self.scratch = ScratchModel(self.runner, self.pool, page, layers)
        self.copier = DonorCopier(self.pool, proof.rotations, page)

    def plant(self, outcome: Outcome) -> None:
        """Wrong in the last layer that rotates, and there only."""
        import torch

        from semblend.integration.core.rotation_proof import SelfTestError, prove_rotations
        from semblend.kv.rope import Rotation

        chosen = [self.rotations[layer] for layer in range(len(self.rotations))]
        rotated = [layer for layer, rotation in enumerate(chosen) if not rotation.is_identity]
        if not rotated:
            return
        right = chosen[rotated[-1]]
        bent = right.inverse_frequencies.clone()
        bent[len(bent) // 3] *= 1.05
        for wrong in (
            Rotation(bent, right.interleaved, right.first_dim),
            Rotation(right.inverse_frequencies, not right.interleaved, right.first_dim),
        ):
            outcome.wrong_planted += 1
            candidates = [[wrong if layer == rotated[-1] else own] for layer, own in enumerate(chosen)]
            settings = self.runner.model_config
            limits = {"vocabulary": settings.vocab_size, "max_positions": settings.context_len}
            try:
                with torch.inference_mode():
                    prove_rotations(self.scratch, partial(list, candidates), **limits)
            except SelfTestError:
                outcome.wrong_caught += 1

    def move(self, outcome: Outcome) -> None:
        """A document computed alone goes behind another head: once moved by us, once computed there by the model."""
        import numpy as np
        import torch

        from semblend.integration.sglang.donor_kv import DonorKV
        from semblend.integration.sglang.kv_pool import keys_of, values_of

        source = np.random.default_rng(0)
        vocabulary = self.runner.model_config.vocab_size
        head, document, tail = (source.integers(3, vocabulary, count) for count in (HEAD, DOCUMENT, TAIL))
        table = self.runner.req_to_token_pool.req_to_token
        alone, whole = torch.arange(256, 256 + DOCUMENT), torch.arange(1024, 1024 + HEAD + DOCUMENT + TAIL)
        table[1, : len(alone)], table[2, : len(whole)] = alone.to(table), whole.to(table)
        target = whole[HEAD : HEAD + DOCUMENT]
        end = HEAD + DOCUMENT
        with torch.inference_mode():
            cold = self._compute(2, 0, np.concatenate([head, document, tail]), whole)
            self._compute(1, 0, document, alone)
            self._compute(2, 0, head, whole)
            self.copier.copy(DonorKV(alone, ()), 0, target, HEAD)
            moved = self._compute(2, end, tail, whole)
            self._compute(1, 0, document, alone, shift=HEAD)
            for layer in (*keys_of(self.pool), *values_of(self.pool)):
                layer[target] = layer[alone]
            by_model = self._compute(2, end, tail, whole)
        outcome.moved_error = float((moved - by_model).abs().max())
        outcome.reuse_changes = float((moved - cold).abs().max())

    def _compute(self, row: int, start: int, tokens: Any, slots: Any, shift: int = 0) -> Any:
        """Prefill ``tokens`` from position ``start`` on in a row of the table; log-probabilities after the last."""
        import numpy as np
        import torch

        from semblend.contract import TokenRange
        from semblend.integration.sglang.gaps import FillCommand, Row, gap_batch
        from semblend.integration.sglang.prefill import Prefill

        end = start + len(tokens)
        base = Prefill(self.runner)._batch(np.zeros(1, np.int64), slots[:1], 0)
        base.req_pool_indices = torch.tensor([row])
        prompt = np.zeros(end, np.uint32)
        prompt[start:] = tokens
        part = TokenRange(start, end)
        batch = gap_batch(self.runner, base, [Row(0, FillCommand("matrix", prompt, (part,), part, 0.0), part)])
        batch.positions = batch.positions + shift
        logits = self.runner.forward(batch).logits_output.next_token_logits[-1]
        return logits.float().log_softmax(-1)


def faults_of(outcome: Outcome) -> list[str]:
    """What is not as expected."""
    expected = NOT_SERVED.get(outcome.name)
    if expected is not None:
        if outcome.served or expected not in outcome.reason:
            return [f"expected '{expected}', got '{outcome.reason or 'served'}'"]
        return []
    if not outcome.served:
        return [f"expected to be served, got '{outcome.reason}'"]
    faults = []
    if outcome.wrong_caught != outcome.wrong_planted:
        faults.append("a planted wrong rotation was not caught")
    bound = FP32_ERROR if outcome.dtype == "float32" else BF16_FRACTION * outcome.reuse_changes
    if not outcome.moved_error <= bound:
        faults.append(f"moved KV changes a log-probability by {outcome.moved_error:.3g}, more than {bound:.3g}")
    if not outcome.reuse_changes > FP32_ERROR:
        faults.append("reuse changes nothing, so that the comparison could not tell")
    return faults


def table(outcomes: Sequence[Outcome]) -> str:
    lines = [
        "| Variant | Layers: rotation | K | Output | Whole | Wrong rotations | Moved | Reuse changes | Seconds |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for one in outcomes:
        if not one.served:
            lines.append(f"| {one.name} | not served: {one.reason} | | | | | | | {one.seconds} |")
            continue
        kinds = [layer["rotation"] for layer in one.layers]
        counted = ", ".join(f"{kinds.count(kind)}: {kind}" for kind in dict.fromkeys(kinds))
        errors = " | ".join(f"{max(layer[name] for layer in one.layers):.3f}" for name in ("key", "output", "whole"))
        lines.append(
            f"| {one.name} | {counted} | {errors} | {one.wrong_caught} of {one.wrong_planted} | "
            f"{one.moved_error:.1e} | {one.reuse_changes:.1e} | {one.seconds} |"
        )
    served = sum(one.served for one in outcomes)
    return "\n".join([*lines, "", f"{served} of {len(outcomes)} variants are served."])


if __name__ == "__main__":
    raise SystemExit(main())
