"""A ledger of the radix cache: every call with what it gave and, when the tree is emptied, every page with its KV.

On where ``TREE_LOG_FOLDER`` names a folder: lines in ``calls.jsonl``, ``tree-<number>.npz`` for each tree that
was not empty. Compared across servers by the tests; without the variable nothing is hooked.
"""

from __future__ import annotations

import hashlib
import json
import os
from array import array
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from sglang.srt.mem_cache.base_prefix_cache import MatchPrefixParams
from sglang.srt.mem_cache.radix_cache import RadixKey
from sglang.srt.plugins.hook_registry import HookRegistry, HookType

VARIABLE: Final = "TREE_LOG_FOLDER"
CACHE: Final = "sglang.srt.mem_cache.unified_radix_cache.UnifiedRadixCache"

Key = tuple[bytes, str | None, str | None]


def register() -> None:
    folder = os.environ.get(VARIABLE)
    if not folder:
        return
    ledger = Ledger(Path(folder))
    for name in _ARGUMENTS:
        HookRegistry.register(f"{CACHE}.{name}", partial(ledger.call, name), HookType.AROUND)
    HookRegistry.register(f"{CACHE}.reset", ledger.reset, HookType.AROUND)


class Ledger:
    """Keeps the keys that were inserted since the last reset: with them every page of the tree can be found."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._inserted: dict[Key, None] = {}
        self._trees = 0

    def call(self, name: str, original: Callable[..., Any], cache: Any, *given: Any, **named: Any) -> Any:
        result = original(cache, *given, **named)
        if name == "insert":
            self._inserted[_key(given[0].key)] = None
        self._write({"call": name, "with": _ARGUMENTS[name](*given, **named), "gave": _plain(result)})
        return result

    def reset(self, original: Callable[..., Any], cache: Any) -> Any:
        if self._inserted:
            np.savez(self._folder / f"tree-{self._trees}.npz", **pages(cache, list(self._inserted)))
            self._trees += 1
            self._inserted.clear()
        self._write({"call": "reset"})
        return original(cache)

    def _write(self, row: dict[str, Any]) -> None:
        with (self._folder / "calls.jsonl").open("a") as lines:
            lines.write(json.dumps(row) + "\n")


def pages(cache: Any, inserted: list[Key]) -> dict[str, Any]:
    """Every page by the digest of all tokens up to its end, with K and V of three layers; ``tokens``: of the tree."""
    found: dict[str, torch.Tensor] = {}
    for ids, extra_key, salt in inserted:
        key = RadixKey(array("q", ids), extra_key, cache_salt=salt)
        match = cache._match_tree(MatchPrefixParams(key=key))
        path = cache.tree_core.collect_full_device_indices(match.last_device_node, cache.root_node_handle(extra_key))
        for end in range(cache.page_size, match.device_prefix_len + 1, cache.page_size):
            found[_digest(ids[: end * 8], extra_key, salt)] = path[end - cache.page_size : end]
    names = sorted(found)
    pool = cache.token_to_kv_pool_allocator.get_kvcache()
    layers = (0, len(pool.k_buffer) // 2, len(pool.k_buffer) - 1)
    slots = (
        torch.stack([found[name] for name in names]) if names else torch.zeros(0, cache.page_size, dtype=torch.int64)
    )
    held = {f"{side}{layer}": buffers[layer][slots].numpy() for layer in layers
            for side, buffers in (("k", pool.k_buffer), ("v", pool.v_buffer))}  # fmt: skip
    return {"names": np.array(names), "tokens": np.array(cache.total_size()[0]), **held}


def _key(key: Any) -> Key:
    return array("q", key.raw_token_ids()).tobytes(), key.extra_key, key.cache_salt


def _digest(ids: bytes, extra_key: str | None, salt: str | None) -> str:
    return hashlib.sha256(repr((extra_key, salt)).encode() + ids).hexdigest()[:24]


def _match_arguments(params: Any) -> list[Any]:
    return [len(params.key), _digest(*_key(params.key)), None if params.req is None else params.req.rid]


def _insert_arguments(params: Any) -> list[Any]:
    slots = hashlib.sha256(params.value.numpy().tobytes()).hexdigest()[:24]
    return [len(params.key), _digest(*_key(params.key)), params.prev_prefix_len, params.inserted_len, slots]


def _request_arguments(req: Any, **named: Any) -> list[Any]:
    return [req.rid, {name: value for name, value in named.items() if isinstance(value, int | bool)}]


def _evict_arguments(params: Any, **_: Any) -> list[Any]:
    return [params.num_tokens]


def _node_arguments(node: Any, *_: Any, **__: Any) -> list[Any]:
    return [node if isinstance(node, int) else None]


def _load_arguments(params: Any) -> list[Any]:
    return [params.host_hit_length, None if params.req is None else params.req.rid]


def _plain(result: Any) -> Any:
    """Of a result only what is a number: nodes and tensors are the engine's own."""
    fields: Iterable[str] = getattr(result, "_fields", None) or getattr(result, "__dataclass_fields__", None) or ()
    return {name: value for name in fields if isinstance(value := getattr(result, name), int | bool)}


_ARGUMENTS: Final[dict[str, Callable[..., list[Any]]]] = {
    "match_prefix": _match_arguments,
    "insert": _insert_arguments,
    "checkpoint": _request_arguments,
    "on_release": _request_arguments,
    "evict": _evict_arguments,
    "evict_for_alloc": _evict_arguments,
    "init_load_back": _load_arguments,
    "inc_lock_ref": _node_arguments,
    "dec_lock_ref": _node_arguments,
}
