"""The storage tier of SGLang's HiCache: the engine's pages by their chained hashes, in host memory.

Selected by ``--hicache-storage-backend dynamic``; called on the engine's backup and prefetch threads, and by our radix
backend for donors the device has evicted. Only what the tree holds is backed up, so every page is exact.
"""

from __future__ import annotations

import logging
from array import array
from collections.abc import Mapping, Sequence
from typing import Any, Final

import torch
from sglang.srt.mem_cache.hicache_storage import HiCacheStorage, HiCacheStorageConfig
from sglang.srt.mem_cache.radix_cache import RadixKey
from sglang.srt.mem_cache.utils import get_storage_hash_str

from sembase.errors import ConfigurationError
from semblend.integration.sglang.page_store import PageNamespace, PageStore, StoreStats

logger = logging.getLogger("sglang.semblend")

MODULE: Final = "semblend.integration.sglang.hicache_backend"
CLASS: Final = "SemBlendStorage"
WHERE: Final = "--hicache-storage-backend-extra-config"
DEFAULT_BUDGET_BYTES: Final = 1 << 30
# Keys of the extra configuration that are the engine's own.
_ENGINE_KEYS: Final = frozenset({"backend_name", "module_path", "class_name", "interface_v1", "file_storage_path"})


class SemBlendStorage(HiCacheStorage):
    """Built by the engine as ``Class(storage_config, kwargs)``; serves once the host pool is registered."""

    def __init__(self, storage_config: HiCacheStorageConfig, kwargs: Mapping[str, Any] | None = None) -> None:
        self._config = storage_config
        self._store: PageStore[torch.Tensor] = PageStore(budget_of(storage_config.extra_config or {}))
        self._namespace: str | None = None
        self._pool: Any = None
        check_tenants_part_hashes()

    def register_mem_pool_host(self, mem_pool_host: Any) -> None:
        super().register_mem_pool_host(mem_pool_host)
        self._pool = mem_pool_host
        self._namespace = page_namespace(self._config, mem_pool_host).digest()
        logger.info("SemBlend's page store holds up to %d bytes of KV in host memory", self._store.budget_bytes)

    # -- one page ------------------------------------------------------------------------------------------------------

    def get(
        self, key: str, target_location: torch.Tensor | None = None, target_sizes: Any = None
    ) -> torch.Tensor | None:
        """A copy in ``target_location`` if one is given, else the page itself, which is read-only."""
        page = None if self._namespace is None else self._store.get(self._namespace, key)
        if page is None or target_location is None:
            return page
        if target_location.numel() != page.numel() or target_location.dtype != page.dtype:
            return None
        target_location.copy_(page.view_as(target_location))
        return target_location

    def set(
        self, key: str, value: torch.Tensor | None = None, target_location: Any = None, target_sizes: Any = None
    ) -> bool:
        if self._namespace is None or value is None:
            return False
        flat = value.detach().reshape(-1)
        if flat.untyped_storage().nbytes() != flat.nbytes or flat.device.type != "cpu":
            flat = flat.to("cpu", copy=True)  # a view of the pool would change under us
        return self._store.put(self._namespace, key, flat)

    def exists(self, key: str) -> bool:
        return self._namespace is not None and self._store.count_leading(self._namespace, [key]) == 1

    # -- many ----------------------------------------------------------------------------------------------------------

    def batch_get(
        self, keys: Sequence[str], target_locations: Sequence[torch.Tensor] | None = None, target_sizes: Any = None
    ) -> list[torch.Tensor | None]:
        targets = [None] * len(keys) if target_locations is None else target_locations
        return [self.get(key, target) for key, target in zip(keys, targets, strict=True)]

    def batch_set(
        self,
        keys: Sequence[str],
        values: Sequence[torch.Tensor] | None = None,
        target_locations: Any = None,
        target_sizes: Any = None,
    ) -> bool:
        if values is None or len(values) != len(keys):
            return False
        kept = [self.set(key, value) for key, value in self._last_first(keys, values)]
        return all(kept)

    def batch_exists(self, keys: Sequence[str], extra_info: Any = None) -> int:
        return 0 if self._namespace is None else self._store.count_leading(self._namespace, keys)

    def batch_get_v1(self, keys: Sequence[str], host_indices: torch.Tensor, extra_info: Any = None) -> list[bool]:
        """Copy pages into the engine's host pool, up to the first that is not held."""
        pages = self.leading_pages(keys)
        for number, page in enumerate(pages):
            self._pool.set_from_flat_data_page(int(host_indices[number * self._pool.page_size]), page)
        return [number < len(pages) for number in range(len(keys))]

    def batch_set_v1(self, keys: Sequence[str], host_indices: torch.Tensor, extra_info: Any = None) -> list[bool]:
        if self._namespace is None:
            return [False] * len(keys)
        firsts = [int(host_indices[number * self._pool.page_size]) for number in range(len(keys))]
        kept = [self.set(key, self._pool.get_data_page(first)) for key, first in self._last_first(keys, firsts)]
        return kept[::-1]

    @staticmethod
    def _last_first(keys: Sequence[str], values: Sequence[Any]) -> list[tuple[str, Any]]:
        """A page is useless without those before it: the first are stored last, so that they are evicted last."""
        return list(zip(keys, values, strict=True))[::-1]

    # -- for donors ----------------------------------------------------------------------------------------------------

    def leading_pages(self, keys: Sequence[str]) -> list[torch.Tensor]:
        return [] if self._namespace is None else self._store.leading(self._namespace, keys)

    # -- the rest ------------------------------------------------------------------------------------------------------

    def clear(self) -> None:
        self._store.clear()

    def stats(self) -> StoreStats:
        return self._store.stats()

    def get_stats(self) -> None:
        """Nothing for the engine's own storage metrics: it counts tokens and times itself. See ``stats``."""
        return

    def close(self) -> None:
        self._store.clear()


def budget_of(extra: Mapping[str, Any]) -> int:
    unknown = sorted(set(extra) - _ENGINE_KEYS - {"budget_bytes"})
    if unknown:
        raise ConfigurationError(f"{WHERE}: unknown key {unknown[0]!r}; SemBlend's page store knows 'budget_bytes'")
    budget = extra.get("budget_bytes", DEFAULT_BUDGET_BYTES)
    if type(budget) is not int or budget <= 0:
        raise ConfigurationError(f"{WHERE}: budget_bytes must be a positive whole number, not {budget!r}")
    return budget


def page_namespace(config: HiCacheStorageConfig, pool: Any) -> PageNamespace:
    if not config.model_name:
        raise ConfigurationError("The page store needs a model name: start the server with --served-model-name")
    return PageNamespace(
        model=config.model_name,
        dtype=str(pool.dtype),
        layout=pool.layout,
        page_tokens=pool.page_size,
        layers=pool.layer_num,
        heads=pool.head_num,
        head_dim=pool.head_dim,
        v_head_dim=pool.v_head_dim,
        ranks=(
            *(config.tp_rank, config.tp_size, config.pp_rank, config.pp_size),
            *(config.attn_cp_rank, config.attn_cp_size, config.dp_rank, config.dcp_rank, config.dcp_size),
        ),
    )


def check_tenants_part_hashes() -> None:
    """Equal tokens of two tenants must have different hashes: nothing else separates their pages."""
    tenants = ((None, None), ("a", None), ("b", None), (None, "a"), (None, "b"), ("a", "b"), ("", None))
    keys = [RadixKey(array("q", range(4)), extra, cache_salt=salt) for extra, salt in tenants]
    first_hashes = {get_storage_hash_str(key, None, page_size=2)[0] for key in keys}
    if len(first_hashes) != len(tenants):
        raise ConfigurationError(
            "This SGLang does not mix extra_key and cache_salt into its page hashes, so tenants would share KV: "
            "run it without SemBlend's page store"
        )
