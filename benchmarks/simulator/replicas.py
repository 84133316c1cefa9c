"""Many replicas over one trace: what each finds in its own cache, in a shared prefix tier and in donors of the fleet.

Every replica has an LRU prefix cache and knows the prompts it computed as donors; the rules of reuse are those of one
engine (`policy.reuse`). ``Sharing`` adds a tier of exact prefixes, donors of the fleet, or both.
Neither store has a bound: its size is a result. A fetch that the modelled times call slower than prefill is refused.
"""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from semantic_kv.policy.reuse import Reuse
from sembase.errors import ConfigurationError
from sembase.trace.columns import BlockTrace

Sharing = Literal["nothing", "prefixes", "donors", "both"]
SHARING: Final[tuple[Sharing, ...]] = ("nothing", "prefixes", "donors", "both")
Writes = Literal["all", "computed"]
WRITES: Final[tuple[Writes, ...]] = ("all", "computed")
MIN_GAIN_TOKENS: Final = 128  # a donor is fetched for at least so many more reused tokens


@dataclass(frozen=True, slots=True)
class Carrier:
    """What moving KV costs. The defaults are an 8B model in 16 bits over 100 Gbit/s, not a measurement."""

    bytes_per_token: int = 131_072
    bytes_per_s: float = 12.5e9
    ms_per_fetch: float = 2.0

    def fetch_ms(self, tokens: int) -> float:
        return self.ms_per_fetch + 1e3 * tokens * self.bytes_per_token / self.bytes_per_s


@dataclass(slots=True, eq=False)
class FleetReplay:
    """Tokens, in order of the requests or in total. ``fetched`` are those of donors, ``loaded`` those of the tier."""

    replicas: int
    prompt: NDArray[np.int64]
    exact: NDArray[np.int64]
    reused: NDArray[np.int64]
    loaded_tokens: int = 0
    fetched_tokens: int = 0
    tier_tokens: int = 0
    donor_tokens: int = 0
    refused_fetches: int = 0
    busiest: int = 0  # requests of the replica that had the most

    @property
    def cached_fraction(self) -> float:
        return float((self.exact + self.reused).sum() / max(1, self.prompt.sum()))


@dataclass(slots=True)
class _Replica:
    cache: OrderedDict[int, None] = field(default_factory=OrderedDict)  # an ancestor is used after its descendants
    computed: set[int] = field(default_factory=set)  # nodes that were exact here, now or earlier
    donors: set[int] = field(default_factory=set)  # content
    requests: int = 0


def simulate_fleet(
    trace: BlockTrace,
    *,
    replicas: int,
    capacity: int,
    sharing: Sharing = "nothing",
    writes: Writes = "computed",
    is_repaired: bool = False,
    reuse: Reuse | None = None,
    carrier: Carrier | None = None,
    seed: int = 0,
    progress: Callable[[int], None] | None = None,
) -> FleetReplay:
    """Serve the requests in order. A session stays at one replica; a request without a session goes to any.

    ``capacity`` is of each replica, in blocks. ``writes``: whether each prompt without reuse becomes a donor of the
    fleet, or only those of which at least half was computed. ``is_repaired``: every blended request becomes exact
    before the next request, which is the most that repair can do.
    """
    if replicas < 1 or capacity < 0:
        raise ConfigurationError("a fleet needs at least one replica and a capacity that is not negative")
    if sharing not in SHARING or writes not in WRITES:
        raise ConfigurationError(f"sharing must be one of {', '.join(SHARING)}, writes one of {', '.join(WRITES)}")
    if trace.parent is None:
        raise ConfigurationError(f"trace '{trace.name}' is a block set without prefixes; load it as a tree")
    fleet = _Fleet(
        trace, replicas, capacity, sharing, writes, is_repaired, reuse or Reuse("blend"), carrier or Carrier()
    )
    fleet.run(random.Random(seed), progress or (lambda count: None))
    return fleet.result


class _Fleet:
    def __init__(
        self,
        trace: BlockTrace,
        replicas: int,
        capacity: int,
        sharing: Sharing,
        writes: Writes,
        is_repaired: bool,
        reuse: Reuse,
        carrier: Carrier,
    ) -> None:
        self._trace, self._capacity, self._reuse, self._carrier = trace, capacity, reuse, carrier
        self._tokens: list[int] = trace.node_tokens.tolist()
        self._content: list[int] = trace.content.tolist()
        self._replicas = [_Replica() for _ in range(replicas)]
        self._tier: set[int] | None = set() if sharing in ("prefixes", "both") else None
        self._donors: set[int] | None = set() if sharing in ("donors", "both") else None
        self._writes_all = writes == "all"
        self._is_repaired = is_repaired
        self._written: set[int] = set()  # last blocks of the prompts that are donors
        count = trace.request_count
        self.result = FleetReplay(
            replicas, trace.prompt_tokens().astype(np.int64), np.zeros(count, np.int64), np.zeros(count, np.int64)
        )

    def run(self, places: random.Random, progress: Callable[[int], None]) -> None:
        homes: dict[int, int] = {}
        for request, session in enumerate(self._trace.session.tolist()):
            at = places.randrange(len(self._replicas))
            if session >= 0:
                at = homes.setdefault(session, at)
            self._serve(request, self._replicas[at])
            progress(1)
        self.result.busiest = max(replica.requests for replica in self._replicas)

    def _serve(self, request: int, replica: _Replica) -> None:
        offsets, result = self._trace.offsets, self.result
        row: list[int] = self._trace.nodes[offsets[request] : offsets[request + 1]].tolist()
        replica.requests += 1
        held = _leading(row, replica.cache)
        start = held if self._tier is None else held + self._from_tier(row[held:])
        reused, fetched = self._plan(row, start, replica)
        result.exact[request] = self._sum(row[:start])
        result.reused[request] = reused
        replica.computed.update(row[held:start])
        becomes_exact = not reused or self._is_repaired
        _enter(replica.cache, row, held, len(row) if becomes_exact else start, self._capacity)
        replica.donors.update(self._content[node] for node in fetched)
        result.fetched_tokens += self._sum(fetched)
        if becomes_exact:
            replica.computed.update(row)
            replica.donors.update(self._content[node] for node in row)
        if not reused:
            self._write(row, int(result.exact[request]))

    def _from_tier(self, missed: Sequence[int]) -> int:
        """Blocks that the tier continues the exact prefix with, and that are worth loading."""
        assert self._tier is not None
        count = _leading(missed, self._tier)
        if not count or not self._is_worth(tokens := self._sum(missed[:count]), tokens):
            return 0
        self.result.loaded_tokens += tokens
        return count

    def _plan(self, row: list[int], start: int, replica: _Replica) -> tuple[int, list[int]]:
        """Tokens reused beyond the first ``start`` blocks, and the blocks to fetch for that."""
        if not self._reuse.is_beyond_prefix:
            return 0, []
        own, _ = self._runs(row, start, replica)
        if self._donors is None:
            return own, []
        reused, fetched = self._runs(row, start, replica, self._donors)
        if reused - own < MIN_GAIN_TOKENS or not self._is_worth(self._sum(fetched), reused - own):
            return own, []
        return reused, fetched

    def _runs(
        self, row: list[int], start: int, replica: _Replica, fleet: Collection[int] = ()
    ) -> tuple[int, list[int]]:
        """As in one engine: tokens of long enough runs of known content, and their blocks that only the fleet has. The
        last block is computed.

        A block that was exact here and was evicted is an ordinary miss, unless it is fetched.
        """
        reused, run_tokens, missed = 0, 0, 0
        to_fetch: list[int] = []  # of the run
        fetched: list[int] = []
        boundary, last = self._reuse.boundary_recompute_tokens, len(row) - 1
        for position in range(start, len(row)):
            node = row[position]
            missed += self._tokens[node]
            content = self._content[node]
            is_own = node not in replica.computed and content in replica.donors
            if position < last and (is_own or content in fleet):
                if not is_own:
                    to_fetch.append(node)
                run_tokens += self._tokens[node]
                continue
            if run_tokens >= self._reuse.min_run_tokens and run_tokens > boundary:
                reused += run_tokens - boundary
                fetched += to_fetch
            to_fetch, run_tokens = [], 0
        least = max(1, self._reuse.min_inexact_tokens, self._reuse.min_reuse_ratio * missed)
        return (reused, fetched) if reused >= least else (0, [])

    def _is_worth(self, fetched_tokens: int, saved_tokens: int) -> bool:
        is_worth = self._carrier.fetch_ms(fetched_tokens) < self._reuse.latency.ms_per_uncached_token * saved_tokens
        self.result.refused_fetches += not is_worth
        return is_worth

    def _write(self, row: list[int], exact_tokens: int) -> None:
        """A prompt that reused nothing beyond its prefix reaches the stores."""
        if self._tier is not None:
            new = [node for node in row if node not in self._tier]
            self._tier.update(new)
            self.result.tier_tokens += self._sum(new)
        is_wanted = self._writes_all or 2 * exact_tokens <= self._sum(row)
        if self._donors is not None and is_wanted and row and row[-1] not in self._written:
            self._written.add(row[-1])
            self._donors.update(self._content[node] for node in row)
            self.result.donor_tokens += self._sum(row)

    def _sum(self, nodes: Sequence[int]) -> int:
        return sum(self._tokens[node] for node in nodes)


def _leading(row: Sequence[int], held: Collection[int]) -> int:
    return next((at for at, node in enumerate(row) if node not in held), len(row))


def _enter(cache: OrderedDict[int, None], row: Sequence[int], held: int, kept: int, capacity: int) -> None:
    """The request's blocks take room; those before ``kept`` stay, the others leave with it."""
    for node in row[:held]:
        cache.move_to_end(node)
    excess = len(cache) + len(row) - held - capacity
    for _ in range(min(excess, len(cache) - held)):
        cache.popitem(last=False)
    for node in row[held : min(kept, capacity)]:
        cache[node] = None
    for node in reversed(row[: min(kept, capacity)]):  # the deepest leaves first
        cache.move_to_end(node)
