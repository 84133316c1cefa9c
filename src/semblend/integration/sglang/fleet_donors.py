"""Sharing donors with other replicas through the engine's own storage: own ones announced, those of others borrowed."""

from __future__ import annotations

import logging
from collections import OrderedDict
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from semblend.contract import Namespace
    from semblend.integration.border import Border
    from semblend.integration.sglang.borrowed_donors import BorrowedDonors
    from semblend.integration.sglang.donor_announcements import DonorAnnouncements
    from semblend.integration.sglang.fetched_pages import FetchedPages
    from semblend.integration.sglang.fleet_spaces import FleetSpaces
    from semblend.integration.sglang.namespace import TreeTenant

MAX_TENANTS: Final = 4096  # whose names are known; the others' donors are not announced

logger = logging.getLogger("sglang.semblend")


class FleetDonors:
    """Public methods are called on the scheduler's thread."""

    def __init__(
        self, spaces: FleetSpaces, announcements: DonorAnnouncements, borrowed: BorrowedDonors, border: Border
    ) -> None:
        self.borrowed = borrowed
        self._announcements = announcements
        self._tenants: OrderedDict[Namespace, TreeTenant] = OrderedDict()
        borrowed.prepare(partial(border.call, "fleet", "", spaces.identify, None))

    @property
    def fetched(self) -> FetchedPages:
        return self.borrowed.fetched

    def arrived(
        self, rid: str, tokens: NDArray[np.uint32], namespace: Namespace, tenant: TreeTenant, *, reuse: bool
    ) -> None:
        """A request was queued."""
        self._tenants[namespace] = tenant
        self._tenants.move_to_end(namespace)
        if len(self._tenants) > MAX_TENANTS:
            self._tenants.popitem(last=False)
        if reuse:
            self.borrowed.arrived(rid, tokens, namespace, tenant)

    def added(self, tokens: NDArray[np.uint32], namespace: Namespace) -> None:
        """An own donor is in the tree."""
        if (tenant := self._tenants.get(namespace)) is not None:
            self._announcements.added(tokens, namespace, tenant)

    def forget_all(self) -> None:
        self.borrowed.forget_all()
        self._announcements.forget_all()

    def close(self) -> None:
        self.borrowed.close()
        self._announcements.close()
