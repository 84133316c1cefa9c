"""Builds what shares donors with other replicas: the engine's storage is proven, its writes are observed."""

from __future__ import annotations

import logging
from array import array
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sglang.srt.mem_cache.radix_cache import RadixKey

from semblend.fleet.donor_object import RowShape
from semblend.integration.sglang.borrowed_donors import BorrowedDonors
from semblend.integration.sglang.donor_announcements import DonorAnnouncements
from semblend.integration.sglang.donor_kv import store_of, stored_hashes
from semblend.integration.sglang.donor_places import tree_key
from semblend.integration.sglang.fleet_donors import FleetDonors
from semblend.integration.sglang.fleet_spaces import FleetSpaces
from semblend.integration.sglang.hicache_backend import check_tenants_part_hashes
from semblend.integration.sglang.page_source import PageSourceError, source_of
from semblend.integration.sglang.written_pages import watch

if TYPE_CHECKING:
    from semblend.contract import Namespace
    from semblend.integration.border import Border
    from semblend.integration.core.fleet_access import DirectoryAccess
    from semblend.integration.fleet_options import SharedPagesOptions
    from semblend.integration.sglang.donors import Donors
    from semblend.integration.sglang.metrics import EngineMetrics
    from semblend.integration.sglang.namespace import TreeTenant
    from semblend.pipeline.planner import Planner

logger = logging.getLogger("sglang.semblend")


def share_donors(
    access: DirectoryAccess,
    options: SharedPagesOptions,
    deployment: Namespace,
    controller: Any,
    planner: Planner,
    donors: Donors,
    metrics: EngineMetrics,
    border: Border,
) -> FleetDonors:
    """Raises ``PageSourceError`` where the storage cannot be used, ``ConfigurationError`` where tenants would meet."""
    check_tenants_part_hashes()
    if store_of(controller) is not None:
        raise PageSourceError("the pages of SemBlendStorage are in this process only; use a shared storage backend")
    source = source_of(controller)
    source.prove()
    pool, page = controller.storage_host_pool, source.page_tokens

    def hashes_of(tokens: NDArray[np.uint32], tenant: TreeTenant) -> list[str]:
        like = RadixKey(array("q"), tenant.extra_key, cache_salt=tenant.cache_salt)
        return stored_hashes(tree_key(like, tokens, len(tokens), page), 0, page)

    row = RowShape(pool.layer_num, 2, pool.head_num, pool.head_dim * pool.dtype.itemsize)
    spaces = FleetSpaces(access, deployment, row, f"{page}:{pool.layout}")
    announcements = DonorAnnouncements(spaces, hashes_of, page, border)
    borrowed = BorrowedDonors(
        spaces,
        source,
        hashes_of,
        planner,
        donors,
        metrics,
        border,
        wait_s=options.fleet_wait_seconds,
        host_bytes=options.fleet_host_bytes,
        min_stored_tokens=controller.prefetch_threshold,
    )
    fleet = FleetDonors(spaces, announcements, borrowed, border)
    watch(controller, source, announcements.written, border)
    donors.on_added = fleet.added
    logger.info("SemBlend shares donors through the engine's storage: its pages came back as they were written")
    return fleet
