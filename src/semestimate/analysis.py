"""One pass over the requests of a trace: every request goes through all parts once."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sembase.trace.reuse_counter import ReuseCounter
from semestimate.anywhere import Anywhere, AnywhereCounter
from semestimate.breaks import BreakFinder, Misses
from semestimate.curve import CacheCurve, CurvePoint
from semestimate.owners import OwnerCount, Owners
from semestimate.prefix import BLOCK_TOKENS, PrefixCache, prefix_blocks
from semestimate.request import Request
from semestimate.work import Work

MEMORY_BYTES: Final = 512 << 20  # of the reuse counter
OTHER_TENANT: Final = "(none)"
_SHOWN_OWNERS: Final = 10
_SPREAD: Final = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What the pass counted. ``notes`` state where memory was bounded and what that means for the figures."""

    traces: tuple[str, ...]
    tokenizer: str
    requests: int
    sessions: int
    tenants: int
    duration_s: float
    prompt: Work
    prefix_tokens: int
    missed: Work
    shows: dict[str, int]
    misses: Misses
    anywhere: Anywhere
    block_tokens: int
    lengths: dict[int, int]
    prefix_curve: tuple[CurvePoint, ...]
    content_curve: tuple[CurvePoint, ...]
    heaviest_tenants: tuple[OwnerCount, ...]
    heaviest_sessions: tuple[OwnerCount, ...]
    observed_requests: int = 0
    observed_hit_tokens: int = 0
    observed_prompt_tokens: int = 0
    notes: tuple[str, ...] = ()
    models: dict[str, int] = field(default_factory=dict)

    @property
    def prefix_share(self) -> float:
        return self.prefix_tokens / self.prompt.tokens if self.prompt.tokens else 0.0

    @property
    def sees_any_position(self) -> bool:
        """Whether any request showed more than prefixes."""
        return bool(self.shows.get("any_position", 0) or self.shows.get("block", 0))

    @property
    def sees_content(self) -> bool:
        """Whether the causes of breaks can be distinguished: every request has its text."""
        return self.shows.get("text", 0) == self.requests


class Analysis:
    """Feed requests in time order with ``add``; ``figures`` may be asked for at any time."""

    def __init__(self, memory_bytes: int = MEMORY_BYTES) -> None:
        self.requests = 0
        self._counter = ReuseCounter(memory_bytes=memory_bytes)
        self._ids = PrefixCache()
        self._anywhere = AnywhereCounter()
        self._breaks = BreakFinder()
        self._prefix_curve, self._content_curve = CacheCurve(), CacheCurve()
        self._tenants, self._sessions = Owners(), Owners()
        self._tenant_numbers: dict[str | None, int] = {}
        self._prompt, self._missed = Work(), Work()
        self._prefix_tokens = 0
        self._shows: Counter[str] = Counter()
        self._models: Counter[str] = Counter()
        self._lengths: Counter[int] = Counter()
        self._first_ms, self._last_ms = float("inf"), float("-inf")
        self._observed = [0, 0, 0]
        self._block_tokens = BLOCK_TOKENS

    def add(self, request: Request) -> None:
        tokens = request.prompt_tokens
        tenant = self._tenant_numbers.setdefault(request.tenant, len(self._tenant_numbers))
        blocks = prefix_blocks(request, tenant)
        found = served = 0
        related: list[int] = []
        if request.digests is None:
            hit = self._ids.add(blocks, self.requests)
            prefix = min(hit.tokens, tokens) if request.shows != "none" else 0
            self._block_tokens = max(self._block_tokens, int(request.tokens[0]))
        else:
            reuse = self._counter.add(request.tenant, request.digests)
            prefix = reuse.prefix_tokens
            planned = self._anywhere.add(reuse)
            found, served = planned.found_tokens, planned.served_tokens
            related = [each for each in (planned.donor, reuse.prefix_donor) if each is not None]
            self._content_curve.add(_spread(request.keys, tenant), request.tokens)
        if request.shows != "none":
            self._prefix_curve.add(blocks.keys, blocks.sizes)
            number = self._counter.requests - 1 if request.digests is not None else -1 - self.requests
            broken = self._breaks.add(request, number, prefix, related) is not None
        else:
            broken = False
        self._count(request, tokens, prefix, found, served, broken)
        self.requests += 1

    def _count(self, request: Request, tokens: int, prefix: int, found: int, served: int, broken: bool) -> None:
        self._prompt += Work.between(0, tokens)
        self._missed += Work.between(prefix, tokens)
        self._prefix_tokens += prefix
        self._shows[request.shows] += 1
        self._shows["text"] += request.shapes is not None
        self._lengths[tokens.bit_length()] += 1
        if request.model is not None and (request.model in self._models or len(self._models) < 64):
            self._models[request.model] += 1
        self._first_ms, self._last_ms = min(self._first_ms, request.at_ms), max(self._last_ms, request.at_ms)
        if request.observed_hit_tokens is not None:
            self._observed = [
                count + more
                for count, more in zip(
                    self._observed, (1, request.observed_hit_tokens, request.observed_prompt_tokens), strict=True
                )
            ]
        owners = [self._tenants.count_of(request.tenant or OTHER_TENANT)]
        if request.session is not None:
            owners.append(self._sessions.count_of(request.session))
        for owner in owners:
            owner.requests += 1
            owner.prompt_tokens += tokens
            owner.prefix_tokens += prefix
            owner.found_tokens += found
            owner.served_tokens += served
            owner.broken_requests += broken

    def figures(self, traces: tuple[str, ...], tokenizer: str) -> Figures:
        return Figures(
            traces=traces,
            tokenizer=tokenizer,
            requests=self.requests,
            sessions=len(self._sessions),
            tenants=len(self._tenant_numbers),
            duration_s=max(0.0, self._last_ms - self._first_ms) / 1e3,
            prompt=self._prompt,
            prefix_tokens=self._prefix_tokens,
            missed=self._missed,
            shows=dict(self._shows),
            misses=self._breaks.misses,
            anywhere=self._anywhere.total,
            block_tokens=self._block_tokens,
            lengths=dict(sorted(self._lengths.items())),
            prefix_curve=self._prefix_curve.points(self._prefix_tokens / max(1, self._prompt.tokens)),
            content_curve=self._content_curve.points(),
            heaviest_tenants=tuple(self._tenants.heaviest(_SHOWN_OWNERS)),
            heaviest_sessions=tuple(self._sessions.heaviest(_SHOWN_OWNERS)),
            observed_requests=self._observed[0],
            observed_hit_tokens=self._observed[1],
            observed_prompt_tokens=self._observed[2],
            notes=tuple(self._notes()),
            models=dict(self._models),
        )

    def _notes(self) -> list[str]:
        notes = []
        if self._ids.shift:
            notes.append(
                f"More than {self._ids.max_blocks:,} distinct blocks: one in {1 << self._ids.shift} was kept, chosen "
                "by its hash; prefix hits of single requests are known to within some blocks."
            )
        if self._counter.oldest_request:
            missed = self._counter.forgotten_tokens / max(1, self._prompt.tokens)
            notes.append(
                f"Memory was full: content last seen before request {self._counter.oldest_request:,} was forgotten. "
                f"Estimated reuse that was not counted for this reason: {100 * missed:.2f} % of the prompt tokens."
            )
        if shift := max(self._prefix_curve.shift, self._content_curve.shift):
            notes.append(f"Cache curves are estimated from one key in {1 << shift}, chosen by its hash.")
        if self._tenants.dropped_names + self._sessions.dropped_names:
            notes.append("Tenants and sessions with few missed tokens were dropped from the ranking.")
        return notes


def _spread(keys: NDArray[np.uint64], tenant: int) -> NDArray[np.uint64]:
    """The same content of two tenants is two contents."""
    mixed = (keys ^ np.uint64(tenant + 1)) * _SPREAD
    return mixed ^ (mixed >> np.uint64(29))
