"""What an engine reports of its own load: Prometheus text of vLLM or SGLang in, four numbers out.

One pass finds the wanted lines by name and reads nothing else.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class EngineLoad:
    """``running`` and ``waiting`` requests, ``kv_usage`` from 0 to 1, ``prefill_tokens``: mean number of prompt tokens
    that the engine computed per request so far, 0.0 if it has not finished any. Engines report how many requests wait,
    not how long they are, so each is expected to need this mean."""

    running: int
    waiting: int
    kv_usage: float
    prefill_tokens: float = 0.0


@dataclass(frozen=True, slots=True)
class _Names:
    """Of one engine's metrics; the mean is (``tokens`` - ``cached``) / ``requests``."""

    running: bytes
    waiting: bytes
    kv_usage: bytes
    tokens: bytes
    requests: bytes
    cached: bytes | None = None

    def all(self) -> tuple[bytes, ...]:
        more = () if self.cached is None else (self.cached,)
        return (self.running, self.waiting, self.kv_usage, self.tokens, self.requests, *more)


_VLLM: Final = _Names(
    b"vllm:num_requests_running",
    b"vllm:num_requests_waiting",
    b"vllm:kv_cache_usage_perc",
    b"vllm:request_prefill_kv_computed_tokens_sum",
    b"vllm:request_prefill_kv_computed_tokens_count",
)
_SGLANG: Final = _Names(
    b"sglang:num_running_reqs",
    b"sglang:num_queue_reqs",
    b"sglang:token_usage",
    b"sglang:prompt_tokens_total",
    b"sglang:num_requests_total",
    b"sglang:cached_tokens_total",
)
_USAGES: Final = frozenset({_VLLM.kv_usage, _SGLANG.kv_usage})
# Asked for in this order until one has the names. Both engines mount a Prometheus application below /metrics that
# filters by name; vLLM's own handler at exactly /metrics does not.
TARGETS: Final = (
    "/metrics/?" + "&".join(f"name[]={name.decode()}" for names in (_VLLM, _SGLANG) for name in names.all()),
    "/metrics",
)


# Exactly these names, with or without labels; a time stamp may follow the value.
_SAMPLE: Final = re.compile(
    rb"\n(" + b"|".join((*_VLLM.all(), *_SGLANG.all())) + rb")(?:\{[^\n]*\})? ([0-9][0-9.e+-]*)"
)


def read_load(page: bytes) -> EngineLoad | None:
    """None if the page has the metrics of neither engine. Ranks of one engine are added; of their KV usage the highest
    counts, since a full rank makes requests wait."""
    sums: dict[bytes, float] = {}
    usage = 0.0
    for name, text in _SAMPLE.findall(b"\n" + page):
        try:
            value = float(text)
        except ValueError:
            continue
        if name in _USAGES:
            usage = max(usage, value)
        else:
            sums[name] = sums.get(name, 0.0) + value
    names = _VLLM if _VLLM.running in sums else _SGLANG
    running, waiting = sums.get(names.running), sums.get(names.waiting)
    if running is None or waiting is None or not math.isfinite(running + waiting):
        return None
    requests = sums.get(names.requests, 0.0)
    tokens = sums.get(names.tokens, 0.0) - (0.0 if names.cached is None else sums.get(names.cached, 0.0))
    mean = max(tokens, 0.0) / requests if requests > 0.0 and math.isfinite(tokens) else 0.0
    return EngineLoad(round(running), round(waiting), usage, mean)
