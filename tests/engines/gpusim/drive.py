"""Run by the engine's interpreter: a tiny random Llama on the simulated GPU, blended, crowded and broken on purpose.

Arguments: a folder, the simulation as JSON, and the names of scenarios. Prints one line of JSON.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from tests.engines.gpusim.configuration import Backend

from semblend.doctor.gpu.driven_engine import (
    COLD,
    OPEN_GATES,
    REUSE,
    DrivenEngine,
    distance,
    random_tokens,
    tiny_arguments,
)
from semblend.doctor.gpu.tiny_model import Piece, TinyModel
from semblend.integration.vllm.flags import transfer_config

SEQUENCES: Final = 3  # fewer than the rows of some sparse forwards: they are split
ANSWER_TOKENS: Final = 6
CROWD_TOKENS: Final = 12
FAULTS: Final = {
    "donor gone": "store_missing",
    "failed verification": "rope:1",
    "store error": "store_truncated",
    "one rank of two": "store_missing@1",
}


class Driver:
    """One engine in this process, two ranks in processes of their own, and the same model in torch."""

    def __init__(self, folder: Path, simulation: dict[str, Any]) -> None:
        self._fault_file = Path(os.environ["FAULT_FILE"])
        self._ranks = int(simulation["ranks"])
        # Interpreted attention takes a second per few hundred tokens.
        small = simulation["backend"] == Backend.TRITON.value
        self._draws = random.Random(0)
        self.head, self.document, self.tail = (self.text(n) for n in ((20, 100, 8) if small else (40, 300, 20)))
        self.model = TinyModel()
        options = {**OPEN_GATES, "min_capture_tokens": 64}
        connector = "tests.engines.vllm.connector.faulty_connector:FaultyConnector"
        self.engine = DrivenEngine(
            tiny_arguments(
                self.model.save(folder),
                options,
                enforce_eager=not simulation["is_compiled"],
                block_size=simulation["block_tokens"],
                max_num_batched_tokens=256,
                max_num_seqs=SEQUENCES,
                tensor_parallel_size=self._ranks,
                async_scheduling=simulation["is_async"],
                num_gpu_blocks_override=12800 // simulation["block_tokens"],
                kv_transfer_config=transfer_config(options, connector=connector),
            )
        )

    def text(self, tokens: int) -> list[int]:
        return random_tokens(self._draws, tokens)

    def store_document(self) -> None:
        """Forget all donors, then serve the document until it is one."""
        self.engine.forget(donors=True)
        self.engine.ask(self.text(8), COLD)  # the workers drop their donors with its step
        self.engine.capture(self.document)

    def inject(self, fault: str) -> None:
        self._fault_file.write_text(fault, encoding="utf-8")

    # -- scenarios -----------------------------------------------------------------------------------------------------

    def blend(self) -> dict[str, Any]:
        """A moved document behind another head, against the same blend made by hand."""
        self.store_document()
        same = self.document + self.tail
        moved = self.head + self.document + self.tail
        same_info, same_logprobs, _ = self.engine.first_logprobs(same)
        info, logprobs, _ = self.engine.first_logprobs(moved)
        by_hand = self.model.blend([Piece(self.head), Piece(self.document, self.document), Piece(self.tail)])
        return {
            "reused": [same_info["reused_tokens"], info["reused_tokens"]],
            "computed": info["computed_tokens"],
            "outcome": info["outcome"],
            "same_context_error": distance(same_logprobs, self.engine.first_logprobs(same, COLD)[1]),
            "blend_error": distance(logprobs, by_hand),
            "blend_against_cold": distance(logprobs, self.engine.first_logprobs(moved, COLD)[1]),
        }

    def everything(self) -> dict[str, Any]:
        """Gaps and runs computed as separate sequences of one pass, or of several: this is the cold prompt."""
        self.store_document()
        loads = self.engine.scheduler_half._loads
        options = loads._options
        parts = [self.document] if len(self.document) < 200 else [self.document[:130], self.document[150:]]
        prompt = [token for part in parts for token in (*self.text(30), *part)] + self.tail
        loads._options = replace(options, recompute_all=True)
        info, logprobs, tokens = self.engine.first_logprobs(prompt, answer=ANSWER_TOKENS)
        loads._options = options
        _, cold_logprobs, cold_tokens = self.engine.first_logprobs(prompt, COLD, answer=ANSWER_TOKENS)
        return {
            "outcome": info["outcome"],
            "computed": info["computed_tokens"],
            "claimed": len(prompt) - len(self.tail),
            "error": distance(logprobs, cold_logprobs),
            "same_tokens": tokens == cold_tokens,
        }

    def crowd(self) -> dict[str, Any]:
        """Requests that decode while a blended one is loaded and computed answer as they do alone."""
        self.store_document()
        neighbours = [self.text(30), self.text(50)]
        moved = self.head + self.document + self.tail
        alone = [self.engine.first_logprobs(prompt, answer=CROWD_TOKENS)[2] for prompt in (*neighbours, moved)]
        together = self.engine.together(neighbours, moved, REUSE, answer=CROWD_TOKENS)
        answers = [list(completion.token_ids) for completion in (*together.completions, together.late)]
        return {
            "unchanged": answers == alone,
            "blended": together.provenance["outcome"],
            "joined_in_flight": together.steps < 2 * CROWD_TOKENS,
        }

    def faults(self) -> dict[str, Any]:
        """Each fault, for an answer of one token and of several: the cold answer, and no reuse in the provenance."""
        prompt = self.head + self.document + self.tail
        _, cold_logprobs, cold_tokens = self.engine.first_logprobs(prompt, COLD, answer=ANSWER_TOKENS)
        found = {}
        for name, fault in FAULTS.items():
            if (self._ranks == 2) != ("@" in fault):
                continue
            for count in (1, ANSWER_TOKENS):
                self.store_document()
                self.inject(fault)
                info, logprobs, tokens = self.engine.first_logprobs(prompt, answer=count)
                self.inject("")
                found[f"{name}, {count}"] = {
                    **{key: info[key] for key in ("outcome", "reason", "detail", "reused_tokens", "computed_tokens")},
                    "error": distance(logprobs, cold_logprobs),
                    "same_tokens": tokens == cold_tokens[:count],
                }
        return found

    def shared_builders(self) -> dict[str, Any]:
        """The mutation, which ends the engine: metadata made by the builders whose buffers its own step still uses."""
        self.store_document()
        forward = sparse_forward_here()
        forward._groups = forward._runner.attn_groups[0]
        try:
            self.engine.first_logprobs(self.head + self.document + self.tail)
        except RuntimeError as broken:
            return {"kind": type(broken).__name__, "message": str(broken)}
        return {"kind": "", "message": "the engine did not notice"}


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
    config = driver.engine.core.vllm_config
    found = {
        "scheduler": type(driver.engine.core.scheduler).__name__,
        "is_v2": bool(config.use_v2_model_runner),
        "block_tokens": config.cache_config.block_size,
        "layout": str(config.cache_config.get_resolved_kv_cache_layout()),
    }
    worker = getattr(driver.engine.core.model_executor, "driver_worker", None)
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
