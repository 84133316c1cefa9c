"""Started by ``test_leaning_passes.py``: a random tiny Llama in the real engine measures a donor while it is idle.

Argument: directory. Prints one line of JSON.
"""

from __future__ import annotations

import json
import os
import random
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

from semblend.doctor.gpu.driven_engine import OPEN_GATES, DrivenEngine, random_tokens, tiny_arguments
from semblend.doctor.gpu.tiny_model import TinyModel
from semblend.plan.leaning import SINKS, leaning_layers, unpack

HEAD, DOCUMENT, TAIL = 40, 320, 20
POLICY = "near_question_or_leaning"


def dense(model: TinyModel, tokens: list[int], size: int) -> Any:
    """Attention of the plain model by parts, without the first tokens: mean over heads and layers."""
    plain: Any = model._model
    plain.set_attn_implementation("eager")
    with torch.no_grad():
        seen = plain(torch.tensor([tokens]), output_attentions=True).attentions
    whole = torch.stack([seen[layer][0].mean(dim=0) for layer in leaning_layers(len(seen))]).mean(dim=0)
    whole[:, :SINKS] = 0.0
    return whole.view(len(tokens), -1, size).sum(dim=2).numpy()


def main() -> None:
    os.environ |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0"}
    folder = Path(sys.argv[1])
    model = TinyModel()
    options = {**OPEN_GATES, "recompute_policy": POLICY}
    engine = DrivenEngine(tiny_arguments(model.save(folder), options, block_size=32, num_gpu_blocks_override=400))
    draws = random.Random(0)
    head, document, tail = (random_tokens(draws, size) for size in (HEAD, DOCUMENT, TAIL))
    other = random_tokens(draws, DOCUMENT)
    half = engine.scheduler_half
    donors = []
    for prompt in (document, other):
        donors.append(engine.ask(prompt)[0]["donor_id"])
        while half.donors.has_waiting_blocks:
            engine.core.step()
        if prompt is other:
            half.donors.leanings.forget_all()
    caches = [layer.kv_cache for layer in engine.connector._worker._cache.layers]
    before = [cache.clone() for cache in caches]
    steps = 0
    half.donors.leanings.stored(donors[0], np.asarray(document, np.uint32))
    while half.donors.leanings.is_waiting:
        engine.core.step()
        steps += 1
    leaning = engine.connector._worker.leanings._made[donors[0]]
    expected = dense(model, document, leaning.part_tokens)
    hints = {"recompute_fraction": 0.2}
    result = {
        "error": float(np.abs(unpack(leaning.rows) - expected).max()),
        "largest": float(expected.max()),
        "changed_bytes": sum(int((now != was).sum()) for now, was in zip(caches, before, strict=True)),
        "steps": steps,
        "selected_by": engine.first_logprobs(head + document + tail, hints)[0]["selected_by"],
        "without": engine.first_logprobs(head + other + tail, hints)[0]["selected_by"],
    }
    sys.stdout.write("RESULT " + json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
