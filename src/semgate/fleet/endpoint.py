"""One replica as discovery names it: where to send requests and where its announcements are published."""

from __future__ import annotations

from dataclasses import dataclass

from sembase.zmq_stream import StreamOptions


@dataclass(frozen=True, slots=True)
class Endpoint:
    """``origin`` is ``http(s)://host:port``. ``ready`` and ``terminating`` are what discovery says of it, None and
    False where it says nothing; the addresses of announcements are ``tcp://host:port`` or None."""

    name: str
    origin: str
    events: str | None = None
    replay: str | None = None
    donors: str | None = None
    ready: bool | None = None
    terminating: bool = False

    def __post_init__(self) -> None:
        """Refused here, before anything is changed by it."""
        for address in (self.events, self.donors):
            if address is not None:
                StreamOptions(address, self.replay)
