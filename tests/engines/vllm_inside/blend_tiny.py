"""Started by ``test_engine.py``: a random tiny Llama in the real engine, and the same blend made by hand.

Arguments: directory, tensor-parallel size, block size. Prints one line of JSON.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from typing import Any

from semblend.doctor.gpu.driven_engine import COLD, OPEN_GATES, DrivenEngine, distance, random_tokens, tiny_arguments
from semblend.doctor.gpu.tiny_model import Piece, TinyModel

HEAD, DOCUMENT, TAIL = 40, 300, 20
SELECTED = 0.2  # fraction of the reused tokens that is computed again, by attention and deviation


def main() -> None:
    directory, ranks, block = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    model = TinyModel()
    options = {**OPEN_GATES, "recompute_policy": "question"}
    shape = {"block_size": block, "tensor_parallel_size": ranks, "num_gpu_blocks_override": 12800 // block}
    engine = DrivenEngine(tiny_arguments(model.save(directory), options, **shape))
    draws = random.Random(0)
    head, document, tail = (random_tokens(draws, size) for size in (HEAD, DOCUMENT, TAIL))
    same, moved = document + tail, head + document + tail
    result: dict[str, Any] = {}
    result["donor"], *_ = engine.first_logprobs(document)
    # The donor's blocks are still in the engine's cache.
    result["from_cache"], cached, _ = engine.first_logprobs(moved, forget=False)
    result["same_context"], loaded, _ = engine.first_logprobs(same)
    result["blended"], blended, _ = engine.first_logprobs(moved)
    result["cache_against_store"] = distance(cached, blended)
    selected = engine.first_logprobs(moved, {"recompute_fraction": SELECTED})
    result["selected"], result["selected_logprobs"], _ = selected
    result["same_context_error"] = distance(loaded, engine.first_logprobs(same, COLD)[1])
    by_hand = model.blend([Piece(head), Piece(document, document), Piece(tail)])
    result["blend_error"] = distance(blended, by_hand)
    result["blend_against_cold"] = distance(blended, engine.first_logprobs(moved, COLD)[1])
    sys.stdout.write("RESULT " + json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
