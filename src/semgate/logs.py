"""Structured logs: one JSON object per line on stderr. Never contains prompt text."""

from __future__ import annotations

import json
import logging
import time
from typing import Any, Final, TextIO

LOGGER: Final = logging.getLogger("semgate")


class JsonLines(logging.Formatter):
    """Our records carry ``fields``; a library's record keeps its message but not its stack trace."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "at": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "event": record.getMessage(),
        }
        if record.name != LOGGER.name:
            line["logger"] = record.name
        line.update(getattr(record, "fields", {}))
        if record.exc_info and record.exc_info[0] is not None:
            line["exception"] = record.exc_info[0].__name__
        return json.dumps(line, ensure_ascii=True, default=str)


def log(level: int, event: str, **fields: Any) -> None:
    """``event`` is a constant phrase, so that logs can be counted; everything else is a field."""
    LOGGER.log(level, event, extra={"fields": fields})


def start_logs(level: str, stream: TextIO) -> None:
    """All loggers of the process write JSON lines to ``stream``; the server's access log is ours, not uvicorn's."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access"):
        logging.getLogger(name).handlers.clear()
        logging.getLogger(name).propagate = name != "uvicorn.access"
    logging.getLogger("uvicorn.error").setLevel(max(logging.WARNING, root.level))
