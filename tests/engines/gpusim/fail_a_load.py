"""Run in vLLM's interpreter: one prompt answered cold and one whose load fails; prints both answers as JSON.

Argument: an empty folder for the model. Runner, scheduling and attention backend come from the environment, as for any
vLLM process. No SemBlend code runs.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

PROMPT, ANSWER = 360, 8


def main() -> None:
    import torch
    from tests.engines.vllm_inside.tiny import CONFIG, VOCABULARY
    from transformers import LlamaConfig, LlamaForCausalLM

    from vllm import LLM, SamplingParams  # type: ignore[attr-defined]

    directory, is_async = Path(sys.argv[1]), sys.argv[2] == "async"
    torch.manual_seed(0)
    options = {key: value for key, value in CONFIG.items() if key not in ("architectures", "model_type", "torch_dtype")}
    llama: Any = LlamaForCausalLM
    settings: Any = LlamaConfig
    llama(settings(**options)).eval().save_pretrained(directory)
    engine = LLM(
        model=str(directory),
        skip_tokenizer_init=True,
        enforce_eager=True,
        dtype="float32",
        block_size=32,
        max_model_len=1024,
        max_num_batched_tokens=1024,
        num_gpu_blocks_override=400,
        async_scheduling=is_async,
        kv_transfer_config={
            "kv_connector": "FailingConnector",
            "kv_connector_module_path": "tests.engines.gpusim.failing_connector",
            "kv_role": "kv_both",
            "kv_load_failure_policy": "recompute",
        },
    )
    prompt = [3 + (number * 37) % (VOCABULARY - 3) for number in range(PROMPT)]

    def answer(*, fail: bool) -> list[int]:
        engine.reset_prefix_cache()
        params = SamplingParams(
            max_tokens=ANSWER,
            temperature=0,
            detokenize=False,
            ignore_eos=True,
            extra_args={"kv_transfer_params": {"fail": fail}},
        )
        (got,) = engine.generate([{"prompt_token_ids": prompt}], params, use_tqdm=False)
        return list(got.outputs[0].token_ids)

    config = engine.llm_engine.vllm_config
    state = {"runner": "V2" if config.use_v2_model_runner else "V1", "async": config.scheduler_config.async_scheduling}
    cold = answer(fail=False)
    sys.stdout.write("RESULT " + json.dumps({**state, "cold": cold, "failed": answer(fail=True)}) + "\n")


if __name__ == "__main__":
    main()
