"""What the radix cache needs to serve more than the stock one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from semblend.contract import Namespace
    from semblend.integration.announce import Announcer
    from semblend.integration.border import Border
    from semblend.integration.event_sink import EventSink
    from semblend.integration.sglang.donor_kv import DonorCopier
    from semblend.integration.sglang.fleet_donors import FleetDonors
    from semblend.integration.sglang.gaps import GapFiller
    from semblend.integration.sglang.options import SglangOptions
    from semblend.integration.sglang.prefill import Prefill
    from semblend.integration.sglang.repair import Repairs
    from semblend.integration.sglang.request_tracker import RequestTracker


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """``fleet`` is None where donors are not shared."""

    options: SglangOptions
    deployment: Namespace
    tracker: RequestTracker
    filler: GapFiller
    copier: DonorCopier
    prefill: Prefill
    repairs: Repairs
    border: Border
    sink: EventSink
    announcer: Announcer
    fleet: FleetDonors | None = None

    def close(self) -> None:
        if self.fleet is not None:
            self.fleet.close()
        self.announcer.close()
        self.tracker.provider.on_shutdown()
        self.sink.close()
