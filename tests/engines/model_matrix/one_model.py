"""One variant in the real engine: is it served or refused, how well does each layer's rotation fit, is a blend right?

Runs in a process of its own, with the engine core inside it. ``run.py`` forks these processes.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tests.engines.model_matrix.variants import MAX_MODEL_LEN, VOCABULARY, Variant
from tests.engines.model_matrix.weights import fill_randomly

from semblend.contract import TokenRange
from semblend.integration.core.rotation_proof import Proof, SelfTestError, prove_rotations
from semblend.integration.vllm.flags import transfer_config
from semblend.integration.vllm.open_request import PagedRequest
from semblend.kv.rope import Rotation

HEAD, DOCUMENT, TAIL = 40, 160, 20
OPTIONS = {
    "boundary_recompute_tokens": 0,
    "recompute_fraction": 0.0,
    "max_context_share": 1.0,
    "min_inexact_tokens": 0,
    "min_reuse_ratio": 0.0,
}


@dataclass(kw_only=True)
class Outcome:
    """What became of one variant. Errors of log-probabilities are the largest over the vocabulary."""

    name: str
    served: bool = False
    reason: str = ""
    groups: list[dict[str, Any]] = field(default_factory=list)  # layers with one rotation, and their errors
    forwards: int = 0
    self_test_s: float = 0.0
    wrong_rotations_caught: int = 0
    wrong_rotations_planted: int = 0
    reused_tokens: int = 0
    reaches: list[int | None] = field(default_factory=list)  # per layer: tokens before its own that a query sees
    same_context_error: float | None = None
    blend_error: float | None = None  # against the blend made by hand, without any rotation of ours
    blend_against_cold: float | None = None  # what the reuse itself changes: shows that the oracle can tell
    seconds: float = 0.0


def outcome_of(variant: Variant, directory: Path) -> Outcome:
    started = time.perf_counter()
    outcome = Outcome(name=variant.name)
    try:
        engine = _engine(variant, directory)
    except Exception as error:  # noqa: BLE001 - the engine refuses in many ways; all of them are outcomes
        outcome.reason = f"the engine does not start: {type(error).__name__}: {' '.join(str(error).split())[:240]}"
    else:
        _examine(engine, outcome)
    outcome.seconds = round(time.perf_counter() - started, 1)
    return outcome


def as_json(outcome: Outcome) -> str:
    return json.dumps(asdict(outcome))


def _engine(variant: Variant, directory: Path) -> Any:
    from transformers import AutoConfig
    from vllm.model_executor.model_loader import dummy_loader  # type: ignore[import-not-found]

    from vllm import LLM  # type: ignore[attr-defined]

    written = AutoConfig.for_model(variant.model_type, **variant.settings).to_dict()
    written |= {"architectures": [variant.architecture], "model_type": variant.model_type, "dtype": "float32"}
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(written, default=str), encoding="utf-8")
    dummy_loader.DummyModelLoader.load_weights = lambda _self, model, _config: fill_randomly(model)
    arguments = {
        "model": str(directory),
        "load_format": "dummy",
        "skip_tokenizer_init": True,
        "enforce_eager": True,
        "dtype": "float32",
        "block_size": 32,
        "max_model_len": MAX_MODEL_LEN,
        "max_num_batched_tokens": MAX_MODEL_LEN,
        "max_num_seqs": 4,
        "num_gpu_blocks_override": 200,
        "max_logprobs": VOCABULARY,
        "worker_cls": "semblend.integration.vllm.worker.SemBlendWorker",
        "kv_transfer_config": transfer_config(OPTIONS),
    }
    return LLM(**{**arguments, **variant.engine})


def _examine(engine: Any, outcome: Outcome) -> None:
    connector = engine.llm_engine.engine_core.engine_core.scheduler.connector
    if connector._half._look_up._can.fault:
        # Short: on the CPU the engine's Mamba layers failed with a prompt of 160 tokens (IndexError); 40 tokens work.
        provenance, _ = _serve(engine, list(range(3, 3 + HEAD)))
        outcome.reason = " ".join(provenance["detail"].split())
        return
    from vllm.distributed.kv_transfer import get_kv_transfer_group

    half = get_kv_transfer_group()._worker  # type: ignore[attr-defined]
    inside = _Inside(engine, half)
    request = PagedRequest(inside.cache, inside.forward, torch.empty(0), np.empty(0, np.int64))
    outcome.reaches = [request.reach(layer) for layer in range(len(request.layers))]
    _measure(inside, outcome)
    _blend(engine, inside, outcome)
    outcome.served = True


class _Inside:
    """The served engine's model, cache and sparse forward."""

    def __init__(self, engine: Any, half: Any) -> None:
        from semblend.integration.vllm.self_test import ScratchModel

        self.config = engine.llm_engine.vllm_config
        self.cache, self.forward, self.rotations = half._cache, half._sparse_forward, half._transfers._rotations
        self.model = self.forward._runner.get_model()
        self.scratch = ScratchModel(self.model, self.cache, self.forward)

    def prove(self, candidates: Sequence[Sequence[Rotation]]) -> Proof:
        from semblend.integration.core.namespace import text_config
        from semblend.integration.rope_config import position_boundaries

        with torch.inference_mode():
            return prove_rotations(
                self.scratch,
                lambda: candidates,
                vocabulary=VOCABULARY,
                max_positions=MAX_MODEL_LEN,
                boundaries=position_boundaries(text_config(self.config.model_config)),
                eight_bits=self.cache.eight_bits,
            )


def _measure(inside: _Inside, outcome: Outcome) -> None:
    chosen = [inside.rotations[layer] for layer in range(len(inside.rotations))]
    started = time.perf_counter()
    proof = inside.prove([[rotation] for rotation in chosen])
    outcome.self_test_s = round(time.perf_counter() - started, 2)
    outcome.forwards = proof.forwards
    outcome.groups = _groups(proof)
    for wrong in _wrong(chosen):
        outcome.wrong_rotations_planted += 1
        try:
            inside.prove(wrong)
        except SelfTestError:
            outcome.wrong_rotations_caught += 1


def _groups(proof: Proof) -> list[dict[str, Any]]:
    groups: list[tuple[Rotation, list[Any]]] = []
    for layer in proof.layers:
        own = next((found for rotation, found in groups if rotation.is_same(layer.rotation)), None)
        if own is None:
            groups.append((layer.rotation, own := []))
        own.append(layer)
    return [
        {
            "layers": len(layers),
            "rotary_dim": rotation.rotary_dim,
            "interleaved": rotation.interleaved,
            "key_error": max(layer.key_error for layer in layers),
            "output_error": max(layer.output_error for layer in layers),
            "whole_error": max(layer.whole_error for layer in layers),
        }
        for rotation, layers in groups
    ]


def _wrong(chosen: Sequence[Rotation]) -> list[list[list[Rotation]]]:
    """Candidates that are wrong in one layer only: one frequency, the pairing; where no layer rotates, none is planted
    here, because the test itself plants a rotation there."""
    rotated = [layer for layer, rotation in enumerate(chosen) if not rotation.is_identity]
    if not rotated:
        return []
    right, layer = chosen[rotated[-1]], rotated[-1]
    frequencies = right.inverse_frequencies.clone()
    frequencies[len(frequencies) // 3] *= 1.05
    planted = (
        Rotation(frequencies, right.interleaved, right.first_dim),
        Rotation(right.inverse_frequencies, not right.interleaved, right.first_dim),
        Rotation(right.inverse_frequencies[:-1], right.interleaved, right.first_dim),
    )
    return [[[wrong if at == layer else own] for at, own in enumerate(chosen)] for wrong in planted]


def _blend(engine: Any, inside: _Inside, outcome: Outcome) -> None:
    source = np.random.default_rng(0)
    head, document, tail = (source.integers(3, VOCABULARY, n).tolist() for n in (HEAD, DOCUMENT, TAIL))
    _serve(engine, document, capture=True)
    _, loaded = _serve(engine, document + tail)
    provenance, blended = _serve(engine, head + document + tail)
    _, cold_same = _serve(engine, document + tail, reuse=False)
    _, cold_moved = _serve(engine, head + document + tail, reuse=False)
    outcome.reused_tokens = provenance["reused_tokens"]
    if not outcome.reused_tokens:
        outcome.reason = f"nothing was reused: {provenance['reason']} {provenance['detail']}"
    outcome.same_context_error = float(np.abs(loaded - cold_same).max())
    outcome.blend_against_cold = float(np.abs(blended - cold_moved).max())
    outcome.blend_error = float(np.abs(blended - _by_hand(inside, head, document, tail)).max())


def _serve(engine: Any, prompt: list[int], *, reuse: bool = True, capture: bool = False) -> tuple[dict[str, Any], Any]:
    from vllm import SamplingParams  # type: ignore[attr-defined]

    _finish_steps(engine)
    engine.reset_prefix_cache()
    hints = {"kv_transfer_params": {"semblend": {"reuse": reuse, "capture": capture}}}
    params = SamplingParams(max_tokens=1, temperature=0, logprobs=VOCABULARY, detokenize=False, extra_args=hints)
    answer = engine.generate([{"prompt_token_ids": prompt}], params, use_tqdm=False)[0]
    first = answer.outputs[0].logprobs[0]
    logprobs = np.array([first[token].logprob for token in range(VOCABULARY)])
    return answer.kv_transfer_params["semblend"], logprobs


def _finish_steps(engine: Any) -> None:
    """Copying a donor takes steps after its answer; an engine core in this process makes none by itself."""
    core = engine.llm_engine.engine_core.engine_core
    for _ in range(100):
        if not core.scheduler.has_requests():
            return
        core.step_fn()
    raise AssertionError("the engine does not come to rest")


def _by_hand(inside: _Inside, head: list[int], document: list[int], tail: list[int]) -> Any:
    """The document computed alone, but at its later positions by the model itself; copied to after the head."""
    from semblend.integration.vllm.self_test import positions_shifted

    cache, forward = inside.cache, inside.forward
    start, end = len(head), len(head) + len(document)
    needed = -(-(end + len(tail)) // cache.block_tokens)
    alone = torch.arange(cache.blocks - needed, cache.blocks)
    whole = alone - needed
    with torch.inference_mode(), ExitStack() as shifted:
        shifted.enter_context(positions_shifted(inside.model, start))
        forward.compute(alone, [TokenRange(0, len(document))], np.array(document))
        shifted.close()
        forward.compute(whole, [TokenRange(0, start)], np.array(head))
        for layer in range(len(cache.names)):
            keys, values = cache.read(layer, alone)
            slots = cache.slots(whole, start, end)
            cache.write(layer, keys[: len(document)], values[: len(document)], slots)
        hidden = forward.compute(whole, [TokenRange(end, end + len(tail))], np.array(tail))
        logits = inside.model.compute_logits(hidden[-1:])
        return logits[0, :VOCABULARY].float().log_softmax(-1).numpy()
