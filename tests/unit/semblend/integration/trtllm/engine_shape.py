"""Arguments and requests of TensorRT-LLM as its published interface describes them. Nothing of it is real."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.conformance.exact_cache import BLOCK


@dataclass
class Request:
    request_id: int
    tokens: Sequence[int]
    cache_salt: str | None = None
    lora_task_id: int | None = None

    def get_tokens(self, beam: int) -> list[int]:
        assert beam == 0
        return list(self.tokens)


def arguments(folder: Path, **changes: Any) -> SimpleNamespace:
    """``TorchLlmArgs`` as far as we read them, for a checkpoint that exists."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text('{"rope_theta": 10000.0}', encoding="utf-8")
    fields: dict[str, Any] = {
        "model": str(folder),
        "revision": None,
        "tokenizer": None,
        "tokenizer_mode": "auto",
        "dtype": "auto",
        "quant_config": None,
        "tensor_parallel_size": 1,
        "pipeline_parallel_size": 1,
        "context_parallel_size": 1,
        "kv_cache_config": SimpleNamespace(tokens_per_block=BLOCK, dtype="auto"),
    }
    return SimpleNamespace(**(fields | changes))
