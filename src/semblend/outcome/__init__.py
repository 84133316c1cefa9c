"""What became of a request, written down once, in the contract's words."""

from semblend.outcome.event_log import EventLog

__all__ = ["EventLog"]
