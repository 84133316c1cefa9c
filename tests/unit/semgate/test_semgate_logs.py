"""Log lines are JSON, without stack traces."""

from __future__ import annotations

import json
import logging

from semgate.logs import JsonLines


def test_a_log_line_is_json_without_a_stack_trace() -> None:
    try:
        raise ValueError("canary in an exception")
    except ValueError as error:
        made = logging.LogRecord("other", logging.ERROR, "file", 1, "it %s", ("broke",), (type(error), error, None))
    line = json.loads(JsonLines().format(made))
    assert (line["event"], line["level"], line["logger"], line["exception"]) == (
        "it broke",
        "error",
        "other",
        "ValueError",
    )
    assert "canary" not in json.dumps(line)
