"""TensorRT-LLM as its published connector interface shows it, on the CPU: pages, an exact prefix tree, single steps.

A page holds, per token, a digest of all tokens up to it. That is what KV is: right only behind the right tokens, so a
page that was loaded wrongly differs from the one cold prefill would have computed.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from semblend.integration.trtllm.connector import SemBlendConnectorScheduler, SemBlendConnectorWorker
from semblend.integration.trtllm.interface import ConnectorScheduler, ConnectorWorker
from semblend.integration.trtllm.record import TrtllmRequest

BLOCK = 16
Tokens = NDArray[np.uint32]


@dataclass
class StubRequest:
    request_id: int
    tokens: list[int]
    cache_salt: str | None = None
    lora_task_id: int | None = None
    generated: list[int] = field(default_factory=list)

    def get_tokens(self, beam: int) -> list[int]:
        assert beam == 0
        return self.tokens + self.generated


@dataclass
class StubRequestData:
    request_id: int
    new_tokens: list[int]
    new_block_ids: list[int]
    computed_position: int
    num_scheduled_tokens: int


@dataclass
class StubOutput:
    new_requests: list[StubRequestData] = field(default_factory=list)
    cached_requests: list[StubRequestData] = field(default_factory=list)


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


def cold_kv(tokens: list[int]) -> NDArray[np.int64]:
    """What prefill computes at every position."""
    digest, row = 0, []
    for token in tokens:
        digest = zlib.crc32(token.to_bytes(4, "little"), digest)
        row.append(digest)
    return np.asarray(row, np.int64)


class StubEngine:
    """One rank. Every served request is checked page by page against cold prefill."""

    def __init__(self, llm_args: Any, pages: int = 512) -> None:
        self.scheduler = SemBlendConnectorScheduler(llm_args)
        self.worker = SemBlendConnectorWorker(llm_args)
        _scheduler: ConnectorScheduler = self.scheduler  # the shape is checked by types, too
        _worker: ConnectorWorker = self.worker
        self.pool = np.zeros((pages, BLOCK), np.int64)
        self.worker.register_kv_caches(self.pool)
        self.tree: dict[tuple[str | None, tuple[int, ...]], int] = {}  # what exact reuse may find: tokens to page
        self._free = list(range(pages - 1))  # the last is left to the self-test
        self.last: TrtllmRequest | None = None  # what the connector knows of the request served last

    def matched(self, request: StubRequest) -> int:
        """The exact prefix of the engine's own tree, in tokens; at least one token is left to compute."""
        whole = (len(request.tokens) - 1) // BLOCK
        for blocks in range(whole, 0, -1):
            if (request.cache_salt, tuple(request.tokens[: blocks * BLOCK])) in self.tree:
                return blocks * BLOCK
        return 0

    def serve(self, request: StubRequest, chunk: int | None = None) -> int:
        """Prefill in chunks, one token, end. How many tokens the connector spared."""
        exact = self.matched(request)
        spared, is_async = self.scheduler.get_num_new_matched_tokens(request, exact)
        assert not is_async
        self.last = self.scheduler.leader.known(request.request_id)
        pages = self._pages(request, exact)
        self.scheduler.update_state_after_alloc(request, pages)
        position, is_first = exact + spared, True
        while position < len(request.tokens):
            step = min(chunk or len(request.tokens), len(request.tokens) - position)
            reported = position - (spared if is_first else 0)
            new_pages = pages if is_first else []
            data = StubRequestData(request.request_id, [], new_pages, reported, step)
            output = StubOutput([data], []) if is_first else StubOutput([], [data])
            self._step(output, lambda p=position, s=step: self._prefill(request, pages, p, s))
            position, is_first = position + step, False
        kv = self.pool[pages].reshape(-1)[: len(request.tokens)]
        request.generated.append(7)
        assert np.array_equal(kv, cold_kv(request.tokens)), "the request was served over KV that is not its own"
        self._finish(request, pages)
        return spared

    def _pages(self, request: StubRequest, exact: int) -> list[int]:
        shared = [
            self.tree[request.cache_salt, tuple(request.tokens[: (n + 1) * BLOCK])] for n in range(exact // BLOCK)
        ]
        fresh = -(-len(request.tokens) // BLOCK) - len(shared)
        taken, self._free = self._free[:fresh], self._free[fresh:]
        return shared + taken

    def _step(self, output: StubOutput, forward: Any) -> None:
        self.worker.bind_connector_meta(self.scheduler.build_connector_meta(output))
        self.worker.start_load_kv(None)
        forward()
        self.worker.wait_for_save(None)
        self.worker.get_finished([], [])
        self.worker._clear_connector_meta()

    def _prefill(self, request: StubRequest, pages: list[int], start: int, count: int) -> None:
        values = cold_kv(request.tokens)
        for position in range(start, start + count):
            self.pool[pages[position // BLOCK], position % BLOCK] = values[position]

    def _finish(self, request: StubRequest, pages: list[int]) -> None:
        """Every full page goes into the tree under its tokens: the engine does not ask the connector."""
        for n in range(len(request.tokens) // BLOCK):
            self.tree.setdefault((request.cache_salt, tuple(request.tokens[: (n + 1) * BLOCK])), pages[n])
        assert self.scheduler.request_finished(request, pages) is False

    def forget_tree(self) -> None:
        """Everything is evicted from the device, and its pages are overwritten."""
        self.tree.clear()
        self.pool[:] = -1
        self._free = list(range(len(self.pool) - 1))

    def close(self) -> None:
        self.scheduler.close()
        self.worker.close()
