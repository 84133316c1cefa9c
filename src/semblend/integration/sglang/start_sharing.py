"""Whether donors are shared with other replicas. The extra ``fleet``, needed for that, is imported only if they are."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from semblend.contract import Namespace
    from semblend.integration.border import Border
    from semblend.integration.core.fleet_access import DirectoryAccess
    from semblend.integration.sglang.donors import Donors
    from semblend.integration.sglang.fleet_donors import FleetDonors
    from semblend.integration.sglang.metrics import EngineMetrics
    from semblend.integration.sglang.options import SglangOptions
    from semblend.pipeline.planner import Planner

logger = logging.getLogger("sglang.semblend")


def fleet_access(options: SglangOptions) -> DirectoryAccess | None:
    """None where donors are not shared. A secret or directory that cannot be used stops the start-up."""
    if options.fleet.places is None:
        return None
    from semblend.integration.core.fleet_access import DirectoryAccess  # noqa: PLC0415 - needs the extra fleet

    return DirectoryAccess(*options.fleet.places)


def fleet_donors(
    access: DirectoryAccess,
    options: SglangOptions,
    deployment: Namespace,
    controller: Any,
    planner: Planner,
    donors: Donors,
    metrics: EngineMetrics,
    border: Border,
) -> FleetDonors | None:
    """Sharing through the engine's own storage, if that gives back what it was given."""
    from semblend.integration.sglang.page_source import PageSourceError  # noqa: PLC0415
    from semblend.integration.sglang.share_donors import share_donors  # noqa: PLC0415 - needs the extra fleet

    try:
        return share_donors(access, options.fleet, deployment, controller, planner, donors, metrics, border)
    except PageSourceError as error:
        logger.warning("SemBlend shares no donors: %s", error)
        return None
