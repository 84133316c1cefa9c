"""vLLM with a SemBlend connector, as it writes to the engine's log. Only a *materialized* line is reuse."""

from __future__ import annotations

import re
from typing import Final

from sembench.engine_events.dialects.base import Heard, fields_of, request_of, whole
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

    def hear(self, line: str, tally: Tally) -> Heard:
        if "SemBlend " not in line:
            return Heard.OTHER
        message = message_of(line)
        found = _LINE.match(message)
        if found is None:
            return Heard.OTHER
        fields = fields_of(message)
        request_id, tokens = request_of(fields), whole(fields.get("tokens"))
        if request_id is None:
            return Heard.DAMAGED
        match found.group(1):
            case "donor registered" if tokens is not None:
                tally.add("donor_registrations")
            case "semantic lookup hit" if (reusable := whole(fields.get("reusable_tokens"))) is not None:
                tally.hit(request_id, reusable_tokens=reusable, kind=fields.get("kind", ""))
            case "request-local experimental load advertised" if tokens is not None:
                tally.add("load_advertisements")
                tally.note("load_advertised", request_id, tokens=tokens)
            case "materializing" if tokens is not None:
                pass  # a beginning; only its end counts
            case "materialized" if tokens is not None:
                tally.materialized(request_id, tokens)
            case "declined" if reason := fields.get("reason"):
                tally.reject(reason)
                tally.note("declined", request_id, reason=reason)
            case "fault contained":
                tally.error(line)
            case _:
                return Heard.DAMAGED
        return Heard.UNDERSTOOD

    def finish(self, tally: Tally) -> None:
        """Every line was counted when it was read."""
