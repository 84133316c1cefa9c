"""The spaces of the fleet as SGLang's replicas share them: a request's namespace in, its keys out.

Pages are read by their hashes, so replicas share donors only if they also agree on page size and host layout.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from semblend.integration.core.fleet_identity import model_content, space_identity

if TYPE_CHECKING:
    from semblend.contract import Namespace
    from semblend.fleet.donor_object import RowShape
    from semblend.fleet.keys import SpaceKeys
    from semblend.integration.core.fleet_access import DirectoryAccess

logger = logging.getLogger("sglang.semblend")


class FleetSpaces:
    """Knows no space until ``identify`` has read the weights, on another thread."""

    def __init__(self, access: DirectoryAccess, deployment: Namespace, shape: RowShape, pages: str) -> None:
        """``pages``: page size and layout."""
        self.directory = access.directory
        self._access = access
        self._deployment = deployment
        self._shape = shape
        self._pages = pages
        self._content: str | None = None

    def identify(self) -> None:
        self._content = model_content(self._deployment)
        if self._content is None:
            logger.warning("SemBlend shares no donors: the model's files or its commit are not known")

    def keys_of(self, namespace: Namespace) -> SpaceKeys | None:
        """None where nothing is shared."""
        if self._content is None:
            return None
        identity = space_identity(namespace, self._content, self._shape)
        return None if identity is None else self._access.keys(f"sglang pages {self._pages} {identity}")
