"""Doubles of the few engine modules the storage backend imports: this environment has torch, but no SGLang."""

from __future__ import annotations

import hashlib
import importlib
import sys
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import pytest
import torch


@dataclass
class Key:
    token_ids: array[int]
    extra_key: str | None = None
    cache_salt: str | None = None

    def page_aligned(self, page: int) -> Key:
        whole = len(self.token_ids) - len(self.token_ids) % page
        return Key(self.token_ids[:whole], self.extra_key, self.cache_salt)


@dataclass
class Config:
    """The fields of the engine's ``HiCacheStorageConfig`` that the backend reads."""

    extra_config: dict[str, Any] | None = field(default_factory=dict)
    model_name: str | None = "model"
    tp_rank: int = 0
    tp_size: int = 1
    pp_rank: int = 0
    pp_size: int = 1
    attn_cp_rank: int = 0
    attn_cp_size: int = 1
    dp_rank: int = 0
    dcp_rank: int = 0
    dcp_size: int = 1


class HostPool:
    """A ``layer_first`` host pool as the engine lays it out."""

    layout, page_size, layer_num, head_num, head_dim, v_head_dim = "layer_first", 4, 2, 3, 8, 8
    dtype = torch.float32

    def __init__(self, tokens: int = 32) -> None:
        self.kv_buffer = torch.zeros(2, self.layer_num, tokens, self.head_num, self.head_dim)

    def get_data_page(self, index: int) -> torch.Tensor:
        return self.kv_buffer[:, :, index : index + self.page_size].flatten()

    def set_from_flat_data_page(self, index: int, page: torch.Tensor) -> None:
        shape = (2, self.layer_num, self.page_size, self.head_num, self.head_dim)
        self.kv_buffer[:, :, index : index + self.page_size] = page.reshape(shape)


class Storage:
    def register_mem_pool_host(self, mem_pool_host: Any) -> None:
        self.mem_pool_host = mem_pool_host


def chained(key: Key, prior: str | None, page_size: int) -> list[str]:
    """As the engine does it: the tenant seeds the chain, each hash covers all pages before its own."""
    return _chain(key.token_ids, repr((key.extra_key, key.cache_salt)), page_size)


def blind_to_tenants(key: Key, prior: str | None, page_size: int) -> list[str]:
    return _chain(key.token_ids, "", page_size)


def _chain(tokens: Sequence[int], seed: str, page: int) -> list[str]:
    hashes = []
    for start in range(0, len(tokens), page):
        seed = hashlib.sha256(f"{seed}{list(tokens[start : start + page])}".encode()).hexdigest()
        hashes.append(seed)
    return hashes


def install(patch: pytest.MonkeyPatch, hashes: Callable[..., list[str]] = chained) -> tuple[Any, Any]:
    """The backend's module and the donors' one, imported over the doubles; undone with ``patch``."""
    contents: dict[str, dict[str, Any]] = {
        "sglang": {},
        "sglang.srt": {},
        "sglang.srt.mem_cache": {},
        "sglang.srt.mem_cache.hicache_storage": {"HiCacheStorage": Storage, "HiCacheStorageConfig": Config},
        "sglang.srt.mem_cache.radix_cache": {"RadixKey": _key},
        "sglang.srt.mem_cache.utils": {"get_storage_hash_str": hashes},
    }
    for name, held in contents.items():
        module = ModuleType(name)
        vars(module).update(held)
        patch.setitem(sys.modules, name, module)
    ours = "semblend.integration.sglang"
    for name in ("hicache_backend", "donor_kv"):
        patch.delitem(sys.modules, f"{ours}.{name}", raising=False)
    backend, donors = (importlib.import_module(f"{ours}.{name}") for name in ("hicache_backend", "donor_kv"))
    for name in ("hicache_backend", "donor_kv"):
        del sys.modules[f"{ours}.{name}"]  # built over doubles: no other test may find them
    return backend, donors


def _key(tokens: array[int], extra_key: str | None = None, *, cache_salt: str | None = None) -> Key:
    return Key(tokens, extra_key, cache_salt)
