"""The real engine with our connector, asked one prompt at a time; and a start of it with the tiny random model."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from sembase.registry import load_target
from semblend.doctor.gpu.tiny_model import VOCABULARY
from semblend.integration.vllm.flags import transfer_config
from semblend.integration.vllm.support import WORKER_CLASS

# Hints of a request: whether it may reuse donors, and whether it becomes one.
REUSE: Final[Mapping[str, Any]] = {"reuse": True}
CAPTURE: Final[Mapping[str, Any]] = {"reuse": True, "capture": True}
COLD: Final[Mapping[str, Any]] = {"reuse": False, "capture": False}
# Everything the planner offers is reused, nothing at boundaries is recomputed: the hand-made blend is the same.
OPEN_GATES: Final = {
    "boundary_recompute_tokens": 0,
    "recompute_fraction": 0.0,
    "max_context_share": 1.0,
    "min_inexact_tokens": 0,
    "min_reuse_ratio": 0.0,  # at any price: the model is tiny
    "refresh_on_repeat": False,
    "prefill_passages": False,
}
MAX_SHORT_REQUESTS: Final = 50  # a donor is registered one or two steps after its copy
STEPS_BEFORE_LATE: Final = 3


def tiny_arguments(model: Path, options: Mapping[str, Any], **changed: Any) -> dict[str, Any]:
    """Arguments of the engine for the tiny model in fp32, with these options of the connector."""
    return {
        "model": str(model),
        "skip_tokenizer_init": True,
        "enforce_eager": True,
        "dtype": "float32",
        "max_model_len": 1024,
        "max_num_batched_tokens": 1024,
        "max_logprobs": VOCABULARY,
        "num_gpu_blocks_override": 800,
        "worker_cls": WORKER_CLASS,
        "kv_transfer_config": transfer_config(options),
        **changed,
    }


def random_tokens(draws: random.Random, count: int, vocabulary: int = VOCABULARY) -> list[int]:
    return [draws.randrange(3, vocabulary) for _ in range(count)]


def distance(one: Sequence[float], other: Sequence[float]) -> float:
    return max(abs(left - right) for left, right in zip(one, other, strict=True))


@dataclass(frozen=True, slots=True)
class Together:
    """Completions of requests, and of one that was admitted while they decoded."""

    completions: list[Any]
    late: Any
    provenance: dict[str, Any]  # of the late one
    steps: int


class DrivenEngine:
    """Everything but questions and answers needs an engine core inside this process."""

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        self._llm = load_target("vllm:LLM")(**arguments)
        self._params = load_target("vllm:SamplingParams")
        self._asked = 0

    @cached_property
    def core(self) -> Any:
        return self._llm.llm_engine.engine_core.engine_core

    @property
    def config(self) -> Any:
        return self.core.vllm_config

    @cached_property
    def runner(self) -> Any:
        """The model runner of a single rank."""
        return self.core.model_executor.driver_worker.worker.model_runner

    @cached_property
    def connector(self) -> Any:
        """Our connector on the worker's side, of a rank in this process."""
        return load_target("vllm.distributed.kv_transfer:get_kv_transfer_group")()

    @property
    def scheduler_half(self) -> Any:
        return self.core.scheduler.connector._half

    def forget(self, *, donors: bool = False) -> None:
        """Empty the exact prefix cache; donors stay unless they are to go."""
        self._llm.reset_prefix_cache(reset_connector=donors)

    def capture(self, prompt: Sequence[int]) -> None:
        """Serve ``prompt``, then short requests until the scheduler has registered it as a donor."""
        before = len(self.scheduler_half.donors)
        self.forget()
        self.ask(prompt, CAPTURE)
        for _ in range(MAX_SHORT_REQUESTS):
            self.ask(random_tokens(random.Random(self._asked), 8), COLD)
            if len(self.scheduler_half.donors) > before:
                return
        raise RuntimeError(f"a prompt of {len(prompt)} tokens did not become a donor")

    def ask(
        self, prompt: Sequence[int], hints: Mapping[str, Any] = REUSE, *, answer: int = 1, logprobs: int = 0
    ) -> tuple[dict[str, Any], Any]:
        """The provenance and the completion."""
        self._asked += 1
        params = self._sampling(hints, answer, logprobs)
        (got,) = self._llm.generate([{"prompt_token_ids": list(prompt)}], params, use_tqdm=False)
        return _provenance(got), got.outputs[0]

    def first_logprobs(
        self, prompt: Sequence[int], hints: Mapping[str, Any] = REUSE, *, answer: int = 1, forget: bool = True
    ) -> tuple[dict[str, Any], list[float], list[int]]:
        """The provenance, the log-probabilities of the first token and the answer, from an empty exact cache."""
        if forget:
            self.forget()
        provenance, completion = self.ask(prompt, hints, answer=answer, logprobs=VOCABULARY)
        first = completion.logprobs[0]
        logprobs = [float(first[token].logprob) for token in range(VOCABULARY)]
        return provenance, logprobs, list(completion.token_ids)

    def together(
        self, prompts: Sequence[Sequence[int]], late: Sequence[int], hints: Mapping[str, Any], *, answer: int
    ) -> Together:
        """Answer ``prompts`` cold, while ``late`` is admitted with ``hints`` after some of their steps."""
        self.forget()
        engine = self._llm.llm_engine
        self._asked += 1
        names = [f"neighbour-{self._asked}-{number}" for number in range(len(prompts))]
        late_name = f"late-{self._asked}"
        given: dict[str, str] = {}  # the engine may rename a request
        for name, prompt in zip(names, prompts, strict=True):
            params = self._sampling(COLD, answer, 1)
            given[engine.add_request(name, {"prompt_token_ids": list(prompt)}, params) or name] = name
        done: dict[str, Any] = {}
        steps = 0
        while engine.has_unfinished_requests():
            for output in engine.step():
                if output.finished:
                    done[given.get(output.request_id, output.request_id)] = output
            steps += 1
            if steps == STEPS_BEFORE_LATE:
                params = self._sampling(hints, answer, 1)
                given[engine.add_request(late_name, {"prompt_token_ids": list(late)}, params) or late_name] = late_name
        completions = [done[name].outputs[0] for name in names]
        return Together(completions, done[late_name].outputs[0], _provenance(done[late_name]), steps)

    def _sampling(self, hints: Mapping[str, Any], answer: int, logprobs: int) -> Any:
        return self._params(
            max_tokens=answer,
            temperature=0,
            logprobs=logprobs,
            detokenize=False,
            ignore_eos=True,
            extra_args={"kv_transfer_params": {"semblend": dict(hints)}},
        )


def _provenance(output: Any) -> dict[str, Any]:
    return dict((output.kv_transfer_params or {}).get("semblend") or {})
