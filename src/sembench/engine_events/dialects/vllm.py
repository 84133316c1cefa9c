"""vLLM's log with a SemBlend connector. Only *materialized* lines count as reuse."""

from __future__ import annotations

import re
from typing import Final

from sembench.engine_events.dialects.base import LineResult, fields_of, request_of, whole
from sembench.engine_events.log_message import message_of
from sembench.engine_events.tally import Tally

_LINE: Final = re.compile(
    r"SemBlend (donor registered|semantic lookup hit|request-local experimental load advertised|materializing"
    r"|materialized|declined|fault contained)(?: |$)"
)


class VllmDialect:
    def begin(self, tally: Tally) -> None:
        tally.measures("donor_registrations", "semantic_hits", "load_advertisements")
        tally.measures("materialization_events", "materialized_tokens")

    def read_line(self, line: str, tally: Tally) -> LineResult:
        if "SemBlend " not in line:
            return LineResult.OTHER
        message = message_of(line)
        found = _LINE.match(message)
        if found is None:
            return LineResult.OTHER
        fields = fields_of(message)
        request_id, tokens = request_of(fields), whole(fields.get("tokens"))
        if request_id is None:
            return LineResult.DAMAGED
        match found.group(1):
            case "donor registered" if tokens is not None:
                tally.add("donor_registrations")
            case "semantic lookup hit" if (reusable := whole(fields.get("reusable_tokens"))) is not None:
                tally.hit(request_id, reusable_tokens=reusable, kind=fields.get("kind", ""))
            case "request-local experimental load advertised" if tokens is not None:
                tally.add("load_advertisements")
                tally.note("load_advertised", request_id, tokens=tokens)
            case "materializing" if tokens is not None:
                pass  # the load has only started; *materialized* is its end
            case "materialized" if tokens is not None:
                tally.materialized(request_id, tokens)
            case "declined" if reason := fields.get("reason"):
                tally.reject(reason)
                tally.note("declined", request_id, reason=reason)
            case "fault contained":
                tally.error(line)
            case _:
                return LineResult.DAMAGED
        return LineResult.UNDERSTOOD

    def finish(self, tally: Tally) -> None:
        """Every line was counted when it was read."""
