"""A stand-in for a server, in simulated time: remembers prompts by their exact prefix, answers by a latency model.

For trying the tools without a server. A trace it made says so in every record; a fit on it finds the model's constants.
"""

from __future__ import annotations

import hashlib
import itertools
from collections import OrderedDict
from typing import Final

import numpy as np

from semantic_kv.collect.request import OK, PromptRequest, Served
from sembase.latency import LatencyModel
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
    """Partial prefixes hit, block by block, per tenant; at most ``capacity_blocks`` are remembered, least recent out.

    ``noise`` is the standard deviation of the logarithm of each time. About 120 bytes per remembered block.
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
        """Prompt and cached tokens, and the prompt is remembered. The last token is always computed."""
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
