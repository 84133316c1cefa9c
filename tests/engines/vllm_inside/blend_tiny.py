"""Started by ``test_engine.py``: a random tiny Llama in the real engine, and the same blend made by hand.

Arguments: directory, tensor-parallel size, block size. Prints one line of JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

HEAD, DOCUMENT, TAIL = 40, 300, 20
SELECTED = 0.2  # fraction of the reused tokens that is computed again, by attention and deviation


def logprobs_of(answer: Any) -> list[float]:
    first = answer[0].outputs[0].logprobs[0]
    return [float(first[token].logprob) for token in range(len(first))]


def by_hand(model: Any, head: list[int], document: list[int], tail: list[int]) -> list[float]:
    """The document's own KV, its keys turned by the length of the head, between a head and a tail computed here."""
    import torch
    from transformers import DynamicCache

    from semblend.kv.rope import half_split, rotate_keys

    def cache_of(tokens: list[int]) -> Any:
        return model(torch.tensor([tokens]), past_key_values=DynamicCache(), use_cache=True).past_key_values

    with torch.no_grad():
        before, moved = cache_of(head), cache_of(document)
        rotation = half_split(1e4, before.layers[0].keys.shape[-1])
        for own, other in zip(before.layers, moved.layers, strict=True):
            keys = rotate_keys(other.keys[0].transpose(0, 1), len(head), rotation).transpose(0, 1)[None]
            own.keys = torch.cat([own.keys, keys], dim=2)
            own.values = torch.cat([own.values, other.values], dim=2)
        at = torch.arange(len(head) + len(document), len(head) + len(document) + len(tail))
        logits = model(torch.tensor([tail]), past_key_values=before, position_ids=at[None]).logits[0, -1]
        return [float(value) for value in logits.log_softmax(-1)]


def main() -> None:
    directory, ranks, block = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    import torch
    from tests.engines.vllm_inside.tiny import CONFIG, VOCABULARY, transfer_config
    from transformers import LlamaConfig, LlamaForCausalLM

    from vllm import LLM, SamplingParams  # type: ignore[attr-defined]

    torch.manual_seed(0)
    options = {key: value for key, value in CONFIG.items() if key not in ("architectures", "model_type", "torch_dtype")}
    llama: Any = LlamaForCausalLM
    settings: Any = LlamaConfig
    model = llama(settings(**options)).eval()
    model.save_pretrained(directory)
    engine = LLM(
        model=str(directory),
        skip_tokenizer_init=True,
        enforce_eager=True,
        dtype="float32",
        block_size=block,
        max_model_len=1024,
        max_num_batched_tokens=1024,
        tensor_parallel_size=ranks,
        max_logprobs=VOCABULARY,
        num_gpu_blocks_override=12800 // block,
        worker_cls="semblend.integration.vllm.worker.SemBlendWorker",
        kv_transfer_config=transfer_config(
            {"boundary_recompute_tokens": 0, "recompute_fraction": 0.0, "recompute_policy": "question_or_deviation"}
        ),
    )

    def serve(prompt: list[int], reset: bool = True, **hint: Any) -> tuple[Any, list[float]]:
        if reset:
            engine.reset_prefix_cache()
        hints = {"kv_transfer_params": {"semblend": hint}}
        params = SamplingParams(max_tokens=1, temperature=0, logprobs=VOCABULARY, detokenize=False, extra_args=hints)
        answer = engine.generate([{"prompt_token_ids": prompt}], params, use_tqdm=False)
        return answer[0].kv_transfer_params["semblend"], logprobs_of(answer)

    source = np.random.default_rng(0)
    head, document, tail = (source.integers(3, VOCABULARY, n).tolist() for n in (HEAD, DOCUMENT, TAIL))
    result: dict[str, Any] = {}
    result["donor"], _ = serve(document)
    result["from_cache"], cached = serve(head + document + tail, reset=False)  # the donor's blocks are still there
    result["same_context"], loaded = serve(document + tail)
    result["blended"], blended = serve(head + document + tail)
    result["cache_against_store"] = float(np.abs(np.subtract(cached, blended)).max())
    result["selected"], result["selected_logprobs"] = serve(head + document + tail, recompute_fraction=SELECTED)
    _, cold_same = serve(document + tail, reuse=False)
    _, cold_moved = serve(head + document + tail, reuse=False)
    result["same_context_error"] = float(np.abs(np.subtract(loaded, cold_same)).max())
    result["blend_error"] = float(np.abs(np.subtract(blended, by_hand(model, head, document, tail))).max())
    result["blend_against_cold"] = float(np.abs(np.subtract(blended, cold_moved)).max())
    sys.stdout.write("RESULT " + json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
