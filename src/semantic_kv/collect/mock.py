"""A mock server in simulated time, for trying the tools without a real one, and a plan run against it.

It remembers prompts by exact prefix and answers by a latency model. Its records are marked as mock; a fit on such a
trace finds the constants of that model.
"""

from __future__ import annotations

import hashlib
import itertools
from collections import OrderedDict
from collections.abc import Sequence
from statistics import median
from typing import Final

import numpy as np

from semantic_kv.collect.plan import Step
from semantic_kv.collect.recorder import TraceRecorder
from semantic_kv.collect.request import OK, PromptRequest, Served
from semantic_kv.latency.batching import batched_times
from sembase.latency import Engine, LatencyModel
from sembase.tokenizer import Tokenizer, WordTokenizer

MOCK_MODEL: Final = LatencyModel(
    base_ms=12.0,
    ms_per_uncached_token=0.35,
    ms_per_million_pairs=9.0,
    step_ms=14.0,
    ms_per_decoding_stream=2.0,
    source="given",
)


class MockServer:
    """Partial prefixes hit, block by block, per tenant. At most ``capacity_blocks`` are kept, in LRU order.

    ``noise`` is the standard deviation of the logarithm of each time. About 120 bytes per block.
    """

    name = "mock"

    def __init__(
        self,
        model: LatencyModel = MOCK_MODEL,
        *,
        block_tokens: int = 16,
        capacity_blocks: int = 20_000,
        noise: float = 0.03,
        seed: int = 0,
        tokenizer: Tokenizer | None = None,
    ) -> None:
        self.model = model
        self._block_tokens = block_tokens
        self._capacity_blocks = capacity_blocks
        self._noise = noise
        self._draws = np.random.default_rng(seed)
        self._tokenizer = tokenizer or WordTokenizer(counted_ids=True)
        self._seen: OrderedDict[bytes, None] = OrderedDict()

    async def ask(self, request: PromptRequest) -> Served:
        prompt_tokens, cached_tokens = self.look_up(request)
        uncached, cached = np.array([prompt_tokens - cached_tokens]), np.array([cached_tokens])
        ttft = float(self.model.ttft_ms(uncached, cached)[0]) * self.jitter()
        decode = float(self.model.decode_ms(np.array([request.max_tokens]))[0]) * self.jitter()
        return Served(OK, ttft, ttft + decode, prompt_tokens, cached_tokens, request.max_tokens, self.name)

    def look_up(self, request: PromptRequest) -> tuple[int, int]:
        """Prompt and cached tokens; adds the prompt to the cache. The last token is always computed."""
        text = "".join(f"<{message.role}>{message.content}" for message in request.messages)
        tokens = self._tokenizer.ids(text)
        digest = hashlib.sha256((request.tenant_id or "").encode("utf-8", "surrogatepass"))
        keys = []
        for block in range(tokens.size // self._block_tokens):
            digest.update(tokens[block * self._block_tokens : (block + 1) * self._block_tokens].tobytes())
            keys.append(digest.copy().digest())
        hits = sum(1 for _ in itertools.takewhile(self._seen.__contains__, keys))
        for key in reversed(keys):
            self._seen[key] = None
            self._seen.move_to_end(key)
        while len(self._seen) > self._capacity_blocks:
            self._seen.popitem(last=False)
        return int(tokens.size), max(0, min(hits * self._block_tokens, int(tokens.size) - 1))

    def jitter(self) -> float:
        return float(np.exp(self._draws.normal(0.0, self._noise)))


def run_mock(steps: Sequence[Step], server: MockServer, recorder: TraceRecorder, engine: Engine | None = None) -> int:
    """Returns the number of records. A request sent alone arrives when every earlier one has finished."""
    looked_up = [server.look_up(step.request) for step in steps]
    prompt = np.array([prompt for prompt, _ in looked_up], dtype=np.int64)
    cached = np.array([cached for _, cached in looked_up], dtype=np.int64)
    output = np.array([step.request.max_tokens for step in steps], dtype=np.int64)
    alone = server.model.ttft_ms(prompt - cached, cached) + server.model.decode_ms(
        output, streams=float(len(steps) > 0)
    )
    arrival = _arrivals(steps, alone)
    times = batched_times(arrival, prompt - cached, cached, output, server.model, engine)
    for index, step in enumerate(steps):
        ttft = (times.first_token_ms[index] - arrival[index]) * server.jitter()
        decode = (times.finish_ms[index] - times.first_token_ms[index]) * server.jitter()
        ticket = recorder.begin(step.request, float(arrival[index]))
        served = Served(
            OK, ttft, ttft + decode, int(prompt[index]), int(cached[index]), int(output[index]), server.name
        )
        recorder.finish(ticket, served, pace=step.pace, mock=True)
    return recorder.written


def _arrivals(
    steps: Sequence[Step], alone_ms: np.ndarray[tuple[int], np.dtype[np.float64]]
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Arrivals as the collector would send them to a server that serves one request at a time."""
    arrival = np.zeros(len(steps))
    now, free_at = 0.0, 0.0
    typical = median(alone_ms.tolist()) if len(steps) else 0.0
    for index, step in enumerate(steps):
        if step.pace == "alone":
            now = max(now, free_at)
        elif step.pace == "paced":
            now += step.gap * typical
        arrival[index] = now
        free_at = max(free_at, now) + float(alone_ms[index])
    return arrival
