"""Events of the contract, written to a file and to the log."""

from semblend.outcome.event_log import EventLog

__all__ = ["EventLog"]
