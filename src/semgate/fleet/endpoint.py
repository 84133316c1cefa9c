"""One replica as discovery lists it: where to send requests and where its announcements are published."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

from sembase.zmq_stream import StreamOptions


@dataclass(frozen=True, slots=True)
class Endpoint:
    """``origin`` is ``http(s)://host:port``. ``ready`` and ``terminating`` are reported by discovery, None and
    False if it does not report them; the addresses of announcements are ``tcp://host:port`` or None."""

    name: str
    origin: str
    _: KW_ONLY
    events: str | None = None
    replay: str | None = None
    donors: str | None = None
    ready: bool | None = None
    terminating: bool = False

    def __post_init__(self) -> None:
        """Validated here, before the fleet changes."""
        for address in (self.events, self.donors):
            if address is not None:
                StreamOptions(address, self.replay)
