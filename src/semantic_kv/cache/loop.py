"""The compiled loop over requests, written once; `specialise` makes one copy of it for each pair of policies.

The names of the hooks are globals of this module on purpose: a copy gets them replaced and the compiler inlines them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache as remember
from pathlib import Path
from types import FunctionType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from semantic_kv.cache import lean
from semantic_kv.cache.lean import Part, compiled_loop, compiled_part, lean_part
from semantic_kv.policy import interface
from semantic_kv.policy.interface import (
    CAPACITY,
    IS_TREE,
    REQUEST,
    RESIDENT,
    USED,
    AdmissionHooks,
    Cache,
    EvictionHooks,
    no_op,
    no_op_after,
    size_of,
    worth_nothing,
)

# positions in `Tally.totals` and rows of `Tally.by_label`
REFERENCES, HIT_BLOCKS, PROMPT_TOKENS, HIT_TOKENS, ADMITTED, REFUSED, EVICTED, JOURNALLED = range(8)
LABEL_REFERENCES, LABEL_HITS, LABEL_EVICTIONS = range(3)

on_hit = on_miss = on_admit = on_release = on_evict = no_op
admit_on_hit = admit_on_miss = admit_on_evict = no_op
after_request = admit_after_request = no_op_after
worth = worth_nothing


def victim(cache: Cache, evict: Any, incoming: int) -> int:
    raise NotImplementedError


def admits(cache: Cache, admit: Any, node: int, leaving: int, node_worth: float, leaving_worth: float) -> bool:
    raise NotImplementedError


class Tally(NamedTuple):
    """What the loop counts. `journal` (length 0: off) takes every admission as node, every eviction as ~node."""

    totals: NDArray[np.int64]
    by_label: NDArray[np.int64]
    journal: NDArray[np.int32]


def _note(tally: Tally, entry: int) -> None:
    at = tally.totals[JOURNALLED]
    if at < len(tally.journal):
        tally.journal[at] = entry
        tally.totals[JOURNALLED] += 1


def _expel(cache: Cache, evict: Any, admit: Any, tally: Tally, node: int) -> None:
    cache.children[node] = -1
    cache.counts[USED] -= size_of(cache, node)
    cache.counts[RESIDENT] -= 1
    if cache.parent[node] >= 0:
        cache.children[cache.parent[node]] -= 1
    tally.totals[EVICTED] += 1
    tally.by_label[LABEL_EVICTIONS, cache.label[node]] += 1
    _note(tally, ~node)
    on_evict(cache, evict, node)
    admit_on_evict(cache, admit, node)


def _enter(cache: Cache, evict: Any, admit: Any, tally: Tally, node: int) -> bool:
    """Make one missed block resident; False where it is refused or no room can be made."""
    room = cache.counts[CAPACITY] - size_of(cache, node)
    if room < 0:
        return False
    leaving = -1
    leaving_worth = 0.0
    if cache.counts[USED] > room:
        leaving = victim(cache, evict, node)
        if leaving < 0:
            return False
        leaving_worth = worth(cache, evict, leaving)
    if not admits(cache, admit, node, leaving, worth(cache, evict, node), leaving_worth):
        return False
    while cache.counts[USED] > room:
        if leaving < 0:
            leaving = victim(cache, evict, node)
            if leaving < 0:
                return False
        _expel(cache, evict, admit, tally, leaving)
        leaving = -1
    cache.children[node] = 0
    cache.pinned[node] = 1
    cache.counts[USED] += size_of(cache, node)
    cache.counts[RESIDENT] += 1
    if cache.parent[node] >= 0:
        cache.children[cache.parent[node]] += 1
    tally.totals[ADMITTED] += 1
    _note(tally, node)
    on_admit(cache, evict, node)
    return True


def _look_up(cache: Cache, evict: Any, admit: Any, tally: Tally, nodes: NDArray[np.int32]) -> tuple[int, int, int]:
    """Count and touch the hits. Returns their number, their tokens and, in a tree, the position of the first miss."""
    is_tree = cache.counts[IS_TREE] != 0
    hits = 0
    hit_tokens = 0
    for position in range(len(nodes)):
        node = int(nodes[position])
        if cache.children[node] < 0:
            if is_tree:
                break
            continue
        hits += 1
        hit_tokens += cache.tokens[node]
        tally.by_label[LABEL_HITS, cache.label[node]] += 1
        if cache.pinned[node] == 0:
            cache.pinned[node] = 1
            on_hit(cache, evict, node)
            admit_on_hit(cache, admit, node)
    return hits, hit_tokens, hits if is_tree else 0


def _take_in(cache: Cache, evict: Any, admit: Any, tally: Tally, nodes: NDArray[np.int32], start: int) -> None:
    """Offer the missed blocks to the cache, first block first."""
    is_tree = cache.counts[IS_TREE] != 0
    is_open = True
    for position in range(start, len(nodes)):
        node = int(nodes[position])
        if cache.children[node] >= 0:  # block set: a hit, or named twice and just admitted
            continue
        on_miss(cache, evict, node)
        admit_on_miss(cache, admit, node)
        if not (is_open and _enter(cache, evict, admit, tally, node)):
            is_open = not is_tree
            tally.totals[REFUSED] += 1


def replay_requests(
    offsets: NDArray[np.int64],
    nodes: NDArray[np.int32],
    arrival_ms: NDArray[np.float64],
    facts: NDArray[np.int64],
    cache: Cache,
    evict: Any,
    admit: Any,
    tally: Tally,
    hit_blocks: NDArray[np.int32],
    hit_tokens: NDArray[np.int32],
    used: NDArray[np.int64],
) -> None:
    for request in range(len(offsets) - 1):
        row = nodes[offsets[request] : offsets[request + 1]]
        cache.now_ms[0] = arrival_ms[request]
        for fact in range(facts.shape[1]):
            cache.facts[fact] = facts[request, fact]
        blocks, tokens, start = _look_up(cache, evict, admit, tally, row)
        _take_in(cache, evict, admit, tally, row, start)
        prompt_tokens = 0
        for position in range(len(row) - 1, -1, -1):
            node = int(row[position])
            prompt_tokens += cache.tokens[node]
            tally.by_label[LABEL_REFERENCES, cache.label[node]] += 1
            if cache.pinned[node]:
                cache.pinned[node] = 0
                on_release(cache, evict, node)
        hit_blocks[request] = blocks
        hit_tokens[request] = tokens
        tally.totals[REFERENCES] += len(row)
        tally.totals[HIT_BLOCKS] += blocks
        tally.totals[PROMPT_TOKENS] += prompt_tokens
        tally.totals[HIT_TOKENS] += tokens
        after_request(cache, evict)
        admit_after_request(cache, admit)
        cache.counts[REQUEST] += 1
        used[request] = cache.counts[USED]


_PARTS = (_note, _expel, _enter, _look_up, _take_in)
Loop = Callable[..., None]


@remember
def specialise(evict_name: str, evict: EvictionHooks, admit_name: str, admit: AdmissionHooks) -> Loop:
    """The loop with these policies compiled into it, cached on disk under their names and the sources' digest."""
    names, copies = dict(globals()), dict[Part, Part]()
    for hook in ("on_hit", "on_miss", "on_admit", "on_release", "on_evict", "after_request", "worth", "victim"):
        names[hook] = lean_part(getattr(evict, hook), copies)
    for hook in ("on_hit", "on_miss", "on_evict", "after_request"):
        names[f"admit_{hook}"] = lean_part(getattr(admit, hook), copies)
    names["admits"] = lean_part(admit.admits, copies)
    names["size_of"] = lean_part(size_of, copies)
    for part in _PARTS:
        names[part.__name__] = compiled_part(FunctionType(part.__code__, names, part.__name__))
    prefix = f"replay_{evict_name}_{admit_name}"
    digest = _sources_digest(copies)
    loop = FunctionType(replay_requests.__code__, names, f"{prefix}_{digest}")
    loop.__qualname__ = loop.__name__
    compiled, folder = compiled_loop(loop)
    if folder is not None:
        _drop_stale(folder, prefix, digest)
    return compiled


def _sources_digest(parts: Iterable[Part]) -> str:
    """The compiler's cache checks this file only, so the digest of all sources becomes part of the copy's name."""
    sources = {Path(__file__), *(Path(module.__file__ or "") for module in (lean, interface))}
    sources.update(Path(getattr(part, "py_func", part).__code__.co_filename) for part in parts)
    digest = hashlib.sha256()
    for source in sorted(sources):
        digest.update(source.read_bytes())
    return digest.hexdigest()[:12]


def _drop_stale(folder: Path, prefix: str, digest: str) -> None:
    """Remove what was compiled for the same policies from older sources."""
    for stale in folder.glob(f"loop.{prefix}_????????????-*"):
        if f"_{digest}-" not in stale.name:
            with suppress(OSError):  # another process was faster, or the folder is read-only
                stale.unlink()
