"""A mock server in simulated time, for trying the tools without a real one, and the trace of a plan run against it.

It remembers prompts by exact prefix and answers by a latency model. Its records are marked as mock; a fit on such a
trace finds the constants of that model.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Final

import numpy as np

from semantic_kv.collect.plan import PlanOptions, Step, plan_requests
from semantic_kv.collect.text import BUILT_IN_TEXT
from semantic_kv.latency.batching import batched_times
from sembase.errors import ConfigurationError
from sembase.latency import LatencyModel
from sembase.segment import Message
from sembase.tokenizer import WordTokenizer
from sembase.trace.anonymise import anonymise, new_key
from sembase.trace.files import write_atomically
from sembase.trace.from_prompt import record_from_messages
from sembase.trace.record import TraceRecord, record_as_json

MOCK_MODEL: Final = LatencyModel(
    base_ms=12.0,
    ms_per_uncached_token=0.35,
    ms_per_million_pairs=9.0,
    step_ms=14.0,
    ms_per_decoding_stream=2.0,
    source="given",
)


BLOCK_TOKENS: Final = 16
CAPACITY_BLOCKS: Final = 20_000
NOISE: Final = 0.03  # standard deviation of the logarithm of each time


class MockServer:
    """Partial prefixes hit, block by block, in LRU order. About 120 bytes per block."""

    def __init__(self) -> None:
        self._tokenizer = WordTokenizer(counted_ids=True)
        self._seen: OrderedDict[bytes, None] = OrderedDict()

    def look_up(self, messages: Sequence[Message]) -> tuple[int, int]:
        """Prompt and cached tokens; adds the prompt to the cache. The last token is always computed."""
        tokens = self._tokenizer.ids("".join(f"<{message.role}>{message.content}" for message in messages))
        digest = hashlib.sha256()
        keys = []
        for block in range(tokens.size // BLOCK_TOKENS):
            digest.update(tokens[block * BLOCK_TOKENS : (block + 1) * BLOCK_TOKENS].tobytes())
            keys.append(digest.copy().digest())
        hits = sum(1 for _ in itertools.takewhile(self._seen.__contains__, keys))
        for key in reversed(keys):
            self._seen[key] = None
            self._seen.move_to_end(key)
        while len(self._seen) > CAPACITY_BLOCKS:
            self._seen.popitem(last=False)
        return int(tokens.size), max(0, min(hits * BLOCK_TOKENS, int(tokens.size) - 1))


def collect_mock_trace(output: Path, plan: PlanOptions, *, keep_text: bool = False) -> int:
    """Returns the number of records. Texts and names are digests under a random key, unless ``keep_text``."""
    if not output.name.endswith(".jsonl"):
        raise ConfigurationError(f"{output}: the output file must end in .jsonl")
    records = list(mock_records(plan_requests((BUILT_IN_TEXT,), plan), plan.seed))
    if not keep_text:
        bare = anonymise(records, new_key())
        records = [replace(each, metadata=record.metadata) for each, record in zip(bare, records, strict=True)]
    with write_atomically(output) as stream:
        stream.writelines(f"{json.dumps(record_as_json(record))}\n".encode() for record in records)
    return len(records)


def mock_records(steps: Sequence[Step], seed: int = 0) -> Iterator[TraceRecord]:
    """The plan served in simulated time. A request sent alone arrives when every earlier one has finished."""
    server, draws = MockServer(), np.random.default_rng(seed)
    looked_up = [server.look_up(step.messages) for step in steps]
    prompt = np.array([prompt for prompt, _ in looked_up], dtype=np.int64)
    cached = np.array([cached for _, cached in looked_up], dtype=np.int64)
    output = np.array([step.max_tokens for step in steps], dtype=np.int64)
    alone = MOCK_MODEL.ttft_ms(prompt - cached, cached) + MOCK_MODEL.decode_ms(output)
    arrival = _arrivals(steps, alone)
    times = batched_times(arrival, prompt - cached, cached, output, MOCK_MODEL)
    jitter = np.exp(draws.normal(0.0, NOISE, (len(steps), 2)))
    ttft = (times.first_token_ms - arrival) * jitter[:, 0]
    total = ttft + (times.finish_ms - times.first_token_ms) * jitter[:, 1]
    for index, step in enumerate(steps):
        bare = record_from_messages(step.messages, request_id=step.request_id, timestamp_ms=float(arrival[index]))
        yield replace(
            bare,
            model_name="mock",
            output_tokens=step.max_tokens,
            observed_ttft_ms=float(ttft[index]),
            observed_total_latency_ms=float(total[index]),
            observed_prefix_hit_tokens=int(cached[index]),
            observed_prefill_tokens=int(prompt[index] - cached[index]),
            metadata={"status": "ok", "kind": step.kind, "pace": step.pace, "mock": True},
        )


def _arrivals(
    steps: Sequence[Step], alone_ms: np.ndarray[tuple[int], np.dtype[np.float64]]
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Arrivals at a server that serves one request at a time."""
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
