"""Run by the engine's interpreter: a tiny random Llama on the simulated GPU, blended, crowded and broken on purpose.

Arguments: a folder, the simulation as JSON, and the names of scenarios. Prints one line of JSON.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from tests.engines.gpusim.configuration import Backend

SEQUENCES: Final = 3  # fewer than the rows of some sparse forwards: they are split
ANSWER_TOKENS: Final = 6
FAULTS: Final = {
    "donor gone": "store_missing",
    "failed verification": "rope:1",
    "store error": "store_truncated",
    "one rank of two": "store_missing@1",
}
Answer = tuple[dict[str, Any], list[float], list[int]]


class Driver:
    """One engine in this process, two ranks in processes of their own, and the same model in torch."""

    def __init__(self, folder: Path, simulation: dict[str, Any]) -> None:
        import torch
        from tests.engines.vllm_inside.tiny import CONFIG, VOCABULARY, transfer_config
        from transformers import LlamaConfig, LlamaForCausalLM

        from vllm import LLM, SamplingParams  # type: ignore[attr-defined]

        self._params: Any = SamplingParams
        self._vocabulary = VOCABULARY
        self._fault_file = Path(os.environ["FAULT_FILE"])
        self._ranks = int(simulation["ranks"])
        # Interpreted attention takes a second per few hundred tokens.
        small = simulation["backend"] == Backend.TRITON.value
        self._source = np.random.default_rng(0)
        self.head, self.document, self.tail = (self.text(n) for n in ((20, 100, 8) if small else (40, 300, 20)))
        torch.manual_seed(0)
        settings = {
            key: value for key, value in CONFIG.items() if key not in ("architectures", "model_type", "torch_dtype")
        }
        llama: Any = LlamaForCausalLM
        config: Any = LlamaConfig
        self.model = llama(config(**settings)).eval()
        self.model.save_pretrained(folder)
        options = {
            "boundary_recompute_tokens": 0,
            "recompute_fraction": 0.0,
            "min_capture_tokens": 64,
            "max_context_share": 1.0,
            "refresh_on_repeat": False,
            "prefill_passages": False,
        }
        transfer = {
            **transfer_config(options),
            "kv_connector": "FaultyConnector",
            "kv_connector_module_path": "tests.engines.vllm.connector.faulty_connector",
        }
        self.engine: Any = LLM(
            model=str(folder),
            skip_tokenizer_init=True,
            enforce_eager=not simulation["is_compiled"],
            dtype="float32",
            block_size=simulation["block_tokens"],
            max_model_len=1024,
            max_num_batched_tokens=256,
            max_num_seqs=SEQUENCES,
            tensor_parallel_size=self._ranks,
            async_scheduling=simulation["is_async"],
            max_logprobs=VOCABULARY,
            num_gpu_blocks_override=12800 // simulation["block_tokens"],
            worker_cls="semblend.integration.vllm.worker.SemBlendWorker",
            kv_transfer_config=transfer,
        )
        self.core: Any = self.engine.llm_engine.engine_core.engine_core

    def text(self, tokens: int) -> list[int]:
        return [int(token) for token in self._source.integers(3, self._vocabulary, tokens)]

    def serve(self, prompt: list[int], tokens: int = 1, *, reuse: bool = True) -> Answer:
        """Provenance, log-probabilities of the first token and the answer, from an empty exact cache."""
        self.engine.reset_prefix_cache()
        params = self._params(
            max_tokens=tokens,
            temperature=0,
            logprobs=self._vocabulary,
            detokenize=False,
            ignore_eos=True,
            extra_args={"kv_transfer_params": {"semblend": {"reuse": reuse}}},
        )
        answer = self.engine.generate([{"prompt_token_ids": prompt}], params, use_tqdm=False)[0]
        first = answer.outputs[0].logprobs[0]
        logprobs = [float(first[token].logprob) for token in range(self._vocabulary)]
        return answer.kv_transfer_params["semblend"], logprobs, list(answer.outputs[0].token_ids)

    def cold(self, prompt: list[int], tokens: int = 1) -> Answer:
        return self.serve(prompt, tokens, reuse=False)

    def store_document(self) -> None:
        """Forget all donors, then serve the document and one request more, with whose step its capture is reported."""
        self.engine.reset_prefix_cache(reset_connector=True)
        for prompt in (self.text(8), self.document, self.text(8)):
            self.serve(prompt)

    def inject(self, fault: str) -> None:
        self._fault_file.write_text(fault, encoding="utf-8")

    # -- scenarios -----------------------------------------------------------------------------------------------------

    def blend(self) -> dict[str, Any]:
        """A moved document behind another head, against the same blend made by hand."""
        from tests.engines.vllm_inside.blend_tiny import by_hand

        self.store_document()
        same = self.document + self.tail
        moved = self.head + self.document + self.tail
        same_info, same_logprobs, _ = self.serve(same)
        info, logprobs, _ = self.serve(moved)
        return {
            "reused": [same_info["reused_tokens"], info["reused_tokens"]],
            "computed": info["computed_tokens"],
            "outcome": info["outcome"],
            "same_context_error": error(same_logprobs, self.cold(same)[1]),
            "blend_error": error(logprobs, by_hand(self.model, self.head, self.document, self.tail)),
            "blend_against_cold": error(logprobs, self.cold(moved)[1]),
        }

    def everything(self) -> dict[str, Any]:
        """Gaps and runs computed as separate sequences of one pass, or of several: this is the cold prompt."""
        self.store_document()
        half = self.core.scheduler.connector._half
        options = half._options
        parts = [self.document] if len(self.document) < 200 else [self.document[:130], self.document[150:]]
        prompt = [token for part in parts for token in (*self.text(30), *part)] + self.tail
        half._options = replace(options, recompute_all=True)
        info, logprobs, tokens = self.serve(prompt, ANSWER_TOKENS)
        half._options = options
        _, cold_logprobs, cold_tokens = self.cold(prompt, ANSWER_TOKENS)
        return {
            "outcome": info["outcome"],
            "computed": info["computed_tokens"],
            "claimed": len(prompt) - len(self.tail),
            "error": error(logprobs, cold_logprobs),
            "same_tokens": tokens == cold_tokens,
        }

    def crowd(self) -> dict[str, Any]:
        """Requests that decode while a blended one is loaded and computed answer as they do alone."""
        self.store_document()
        prompts = {"one": self.text(30), "two": self.text(50)}
        prompts["blended"] = self.head + self.document + self.tail
        alone = {name: self.serve(prompt, 12)[2] for name, prompt in prompts.items()}
        self.engine.reset_prefix_cache()
        params = self._params(max_tokens=12, temperature=0, detokenize=False, ignore_eos=True)
        engine, together, infos, steps = self.engine.llm_engine, {}, {}, 0
        names = {engine.add_request(name, {"prompt_token_ids": prompts[name]}, params): name for name in ("one", "two")}
        while engine.has_unfinished_requests():
            for output in engine.step():
                if output.finished:
                    name = names.get(output.request_id, output.request_id)
                    together[name] = list(output.outputs[0].token_ids)
                    infos[name] = output.kv_transfer_params["semblend"]["outcome"]
            steps += 1
            if steps == 4:
                names[engine.add_request("blended", {"prompt_token_ids": prompts["blended"]}, params)] = "blended"
        return {
            "unchanged": together == alone,
            "blended": infos.get("blended"),
            "joined_in_flight": steps < 24,
        }

    def faults(self) -> dict[str, Any]:
        """Each fault, for an answer of one token and of several: the cold answer, and no reuse in the provenance."""
        prompt = self.head + self.document + self.tail
        cold_logprobs, cold_tokens = self.cold(prompt, ANSWER_TOKENS)[1:]
        found = {}
        for name, fault in FAULTS.items():
            if (self._ranks == 2) != ("@" in fault):
                continue
            for count in (1, ANSWER_TOKENS):
                self.store_document()
                self.inject(fault)
                info, logprobs, tokens = self.serve(prompt, count)
                self.inject("")
                found[f"{name}, {count}"] = {
                    **{key: info[key] for key in ("outcome", "reason", "detail", "reused_tokens", "computed_tokens")},
                    "error": error(logprobs, cold_logprobs),
                    "same_tokens": tokens == cold_tokens[:count],
                }
        return found

    def shared_builders(self) -> dict[str, Any]:
        """The mutation, which ends the engine: metadata made by the builders whose buffers its own step still uses."""
        self.store_document()
        forward = sparse_forward_here()
        forward._groups = forward._runner.attn_groups[0]
        try:
            self.serve(self.head + self.document + self.tail)
        except RuntimeError as broken:
            return {"kind": type(broken).__name__, "message": str(broken)}
        return {"kind": "", "message": "the engine did not notice"}


def error(one: list[float], other: list[float]) -> float:
    return float(np.abs(np.subtract(one, other)).max())


def main(folder: str, simulation: str, *names: str) -> None:
    started = time.process_time()
    driver = Driver(Path(folder), json.loads(simulation))
    scenarios: dict[str, Callable[[], dict[str, Any]]] = {
        "blend": driver.blend,
        "everything": driver.everything,
        "crowd": driver.crowd,
        "faults": driver.faults,
        "shared_builders": driver.shared_builders,
    }
    result: dict[str, Any] = {"start": describe(driver)}
    result |= {name: scenarios[name]() for name in names}
    result["cpu_s"] = round(time.process_time() - started, 1)
    sys.stdout.write("RESULT " + json.dumps(result) + "\n")


def describe(driver: Driver) -> dict[str, Any]:
    """What really ran, so that no test passes on another configuration than it names."""
    config = driver.core.vllm_config
    found = {
        "scheduler": type(driver.core.scheduler).__name__,
        "is_v2": bool(config.use_v2_model_runner),
        "block_tokens": config.cache_config.block_size,
        "layout": str(config.cache_config.get_resolved_kv_cache_layout()),
    }
    worker = getattr(driver.core.model_executor, "driver_worker", None)
    runner = getattr(getattr(worker, "worker", None), "model_runner", None)
    if runner is not None:
        found["uses_graph"] = sparse_forward_here().uses_graph
        found["builder"] = type(runner.attn_groups[0][0].get_metadata_builder(0)).__name__
    return found


def sparse_forward_here() -> Any:
    """The sparse forward of a rank in this process."""
    from vllm.distributed.kv_transfer import get_kv_transfer_group

    connector: Any = get_kv_transfer_group()
    return connector._worker._sparse_forward


if __name__ == "__main__":
    main(*sys.argv[1:])
