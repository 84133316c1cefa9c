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

from semantic_kv.cache import blend_state, blended, lean
from semantic_kv.cache.blend_state import MODE, USED_BY_REQUEST, Blend, note_arrival, plan_reuse
from semantic_kv.cache.blended import BLENDED_PARTS, _repair_until, _serve_blend, _stop_repairs, _take_private
from semantic_kv.cache.lean import Part, compiled_loop, compiled_part, lean_part
from semantic_kv.policy import interface, reuse
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
from semantic_kv.policy.reuse import PREFIX

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


def _enter(cache: Cache, evict: Any, admit: Any, tally: Tally, blend: Blend, node: int) -> bool:
    """Make one missed block resident; False where it is refused or no room can be made."""
    room = cache.counts[CAPACITY] - size_of(cache, node)
    if room < 0:
        return False
    leaving = -1
    leaving_worth = 0.0
    if cache.counts[USED] > room:
        leaving = victim(cache, evict, node)
        if leaving < 0 and _stop_repairs(cache, evict, blend):
            leaving = victim(cache, evict, node) if cache.counts[USED] > room else -1
        if leaving < 0 and cache.counts[USED] > room:
            return False
    if leaving >= 0:
        leaving_worth = worth(cache, evict, leaving)
    if not admits(cache, admit, node, leaving, worth(cache, evict, node), leaving_worth):
        return False
    while cache.counts[USED] > room:
        if leaving < 0:
            leaving = victim(cache, evict, node)
            if leaving < 0 and _stop_repairs(cache, evict, blend):
                continue
            if leaving < 0:
                return False
        _expel(cache, evict, admit, tally, leaving)
        leaving = -1
    cache.children[node] = 0
    cache.pinned[node] = USED_BY_REQUEST
    cache.counts[USED] = cache.counts[USED] + size_of(cache, node)
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
            cache.pinned[node] = USED_BY_REQUEST
            on_hit(cache, evict, node)
            admit_on_hit(cache, admit, node)
        cache.pinned[node] |= USED_BY_REQUEST
    return hits, hit_tokens, hits if is_tree else 0


def _take_in(
    cache: Cache, evict: Any, admit: Any, tally: Tally, blend: Blend, nodes: NDArray[np.int32], start: int
) -> None:
    """Offer the missed blocks to the cache, first block first."""
    is_tree = cache.counts[IS_TREE] != 0
    is_open = True
    for position in range(start, len(nodes)):
        node = int(nodes[position])
        if cache.children[node] >= 0:  # block set: a hit, or named twice and just admitted
            continue
        on_miss(cache, evict, node)
        admit_on_miss(cache, admit, node)
        if not (is_open and _enter(cache, evict, admit, tally, blend, node)):
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
    blend: Blend,
    hit_blocks: NDArray[np.int32],
    hit_tokens: NDArray[np.int32],
    reused_tokens: NDArray[np.int32],
    used: NDArray[np.int64],
) -> None:
    for request in range(len(offsets) - 1):
        row = nodes[offsets[request] : offsets[request + 1]]
        cache.now_ms[0] = arrival_ms[request]
        for fact in range(facts.shape[1]):
            cache.facts[fact] = facts[request, fact]
        is_blending = blend.limits[MODE] != PREFIX
        if is_blending:
            _repair_until(cache, evict, admit, tally, blend, arrival_ms[request])
            note_arrival(blend, row, arrival_ms[request])
        blocks, tokens, start = _look_up(cache, evict, admit, tally, row)
        reused = plan_reuse(cache, blend, row, start) if is_blending else 0
        private = 0
        if reused == 0:
            _take_in(cache, evict, admit, tally, blend, row, start)
        else:
            private = _take_private(cache, evict, admit, tally, blend, row, start)
            tally.totals[REFUSED] += len(row) - start
        if is_blending:
            _serve_blend(cache, evict, blend, row, start, tokens, reused, private)
        prompt_tokens = 0
        for position in range(len(row) - 1, -1, -1):
            node = int(row[position])
            prompt_tokens += cache.tokens[node]
            tally.by_label[LABEL_REFERENCES, cache.label[node]] += 1
            if cache.pinned[node] & USED_BY_REQUEST:
                cache.pinned[node] &= 255 - USED_BY_REQUEST
                if cache.pinned[node] == 0:
                    on_release(cache, evict, node)
        hit_blocks[request] = blocks
        hit_tokens[request] = tokens
        reused_tokens[request] = reused
        tally.totals[REFERENCES] += len(row)
        tally.totals[HIT_BLOCKS] += blocks
        tally.totals[PROMPT_TOKENS] += prompt_tokens
        tally.totals[HIT_TOKENS] += tokens
        after_request(cache, evict)
        admit_after_request(cache, admit)
        cache.counts[REQUEST] += 1
        used[request] = cache.counts[USED]


_PARTS = (_note, _expel, _enter, _look_up, _take_in)


def _no_job(cache: Cache, evict: Any, blend: Blend) -> bool:
    return False


def _no_plan(cache: Cache, blend: Blend, row: NDArray[np.int32], start: int) -> int:
    return 0


def _no_arrival(blend: Blend, row: NDArray[np.int32], now_ms: float) -> None:
    return


def _no_repair(cache: Cache, evict: Any, admit: Any, tally: Tally, blend: Blend, now_ms: float) -> None:
    return


def _no_private(
    cache: Cache, evict: Any, admit: Any, tally: Tally, blend: Blend, row: NDArray[np.int32], start: int
) -> int:
    return 0


def _no_blend(
    cache: Cache, evict: Any, blend: Blend, row: NDArray[np.int32], start: int, hit: int, reused: int, private: int
) -> None:
    return


# In place of the blended parts where nothing is reused beyond the prefix: they take long to compile.
_PREFIX_PARTS: dict[str, Part] = {
    "_stop_repairs": _no_job,
    "plan_reuse": _no_plan,
    "note_arrival": _no_arrival,
    "_repair_until": _no_repair,
    "_take_private": _no_private,
    "_serve_blend": _no_blend,
}
Loop = Callable[..., None]


@remember
def specialise(
    evict_name: str, evict: EvictionHooks, admit_name: str, admit: AdmissionHooks, *, is_blending: bool = False
) -> Loop:
    """The loop with these policies compiled into it, cached on disk under their names and the sources' digest."""
    names, copies = {**vars(blended), **globals()}, dict[Part, Part]()
    for hook in ("on_hit", "on_miss", "on_admit", "on_release", "on_evict", "after_request", "worth", "victim"):
        names[hook] = lean_part(getattr(evict, hook), copies)
    for hook in ("on_hit", "on_miss", "on_evict", "after_request"):
        names[f"admit_{hook}"] = lean_part(getattr(admit, hook), copies)
    names["admits"] = lean_part(admit.admits, copies)
    if not is_blending:
        names.update({name: compiled_part(part) for name, part in _PREFIX_PARTS.items()})
    parts = (*_PARTS, *BLENDED_PARTS) if is_blending else _PARTS
    for part in (*parts, replay_requests):
        for name in part.__code__.co_names:
            if hasattr(names.get(name), "py_func") and names[name] not in copies.values():
                names[name] = lean_part(names[name], copies)
    for part in parts:
        inline = part not in BLENDED_PARTS
        names[part.__name__] = compiled_part(FunctionType(part.__code__, names, part.__name__), inline=inline)
    prefix = f"replay_{evict_name}_{admit_name}" + ("_blend" if is_blending else "")
    digest = _sources_digest(copies)
    loop = FunctionType(replay_requests.__code__, names, f"{prefix}_{digest}")
    loop.__qualname__ = loop.__name__
    compiled, folder = compiled_loop(loop)
    if folder is not None:
        _drop_stale(folder, prefix, digest)
    return compiled


def _sources_digest(parts: Iterable[Part]) -> str:
    """The compiler's cache checks this file only, so the digest of all sources becomes part of the copy's name."""
    modules = (lean, blended, blend_state, interface, reuse)
    sources = {Path(__file__), *(Path(module.__file__ or "") for module in modules)}
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
