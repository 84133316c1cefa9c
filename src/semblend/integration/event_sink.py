"""Where an adapter's events go: to the event stream, if one is configured, and as documented lines to the log."""

from __future__ import annotations

import logging
from pathlib import Path

from semblend.contract import Event
from semblend.outcome.event_log import EventLog
from semblend.outcome.log_lines import log_line
from semblend.outcome.reuse_summary import ReuseSummary


class EventSink:
    """Writes every event to the stream, if there is one, and its documented line to the log; sums up each minute."""

    def __init__(self, path: Path | None, log: logging.Logger, engine: str) -> None:
        self._stream = EventLog(path, engine) if path is not None else None
        self._log = log
        self._summary = ReuseSummary(log.info)

    def write(self, event: Event) -> None:
        if self._stream is not None:
            self._stream.write(event)
        if (line := log_line(event)) is not None:
            self._log.info(line)
        self._summary.count(event)

    def close(self) -> None:
        self._summary.flush()
        if self._stream is not None:
            self._stream.close()
