"""What the readers of request logs share: a request body and what a log knows about the reply in, a trace record out.

Times are Unix seconds, milliseconds, microseconds or nanoseconds (told apart by size), or ISO 8601 with a zone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from typing import Any, Final

from sembase.segment.pieces import (
    Piece,
    messages_of_responses,
    pieces_of_messages,
    pieces_of_text,
    pieces_of_tokens,
    pieces_of_tools,
)
from sembase.tokenizer import RecentCounts, open_tokenizer
from sembase.trace.from_prompt import blocks_from_pieces
from sembase.trace.record import TraceRecord

_MS_PER_UNIT: Final = ((1e17, 1e-6), (1e14, 1e-3), (1e11, 1.0), (0.0, 1e3))


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What a log knows besides the prompt; None is unknown."""

    session: str | None = None
    tenant: str | None = None
    model: str | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None
    ttft_ms: float | None = None
    total_ms: float | None = None


class RecordBuilder:
    """Remembers token counts, and numbers requests without a time or an id: they arrive one millisecond apart."""

    def __init__(self) -> None:
        self._counts = RecentCounts(open_tokenizer(None))
        self._count = 0

    def record(
        self, pieces: Iterator[Piece], request_id: str | None, at_ms: float | None, reply: Reply
    ) -> TraceRecord | None:
        """None if the request has no prompt."""
        self._count += 1
        blocks = blocks_from_pieces(pieces, self._counts)
        if not blocks:
            return None
        is_known = reply.prompt_tokens is not None and reply.cached_tokens is not None
        return TraceRecord(
            request_id=request_id or f"line-{self._count}",
            timestamp_ms=float(self._count) if at_ms is None else at_ms,
            blocks=blocks,
            session_id=reply.session or None,
            tenant_id=reply.tenant or None,
            model_name=reply.model or None,
            output_tokens=reply.output_tokens,
            observed_ttft_ms=reply.ttft_ms,
            observed_total_latency_ms=reply.total_ms,
            observed_prefix_hit_tokens=reply.cached_tokens,
            observed_prefill_tokens=max(0, (reply.prompt_tokens or 0) - (reply.cached_tokens or 0))
            if is_known
            else None,
            metadata={} if reply.prompt_tokens is None else {"prompt_tokens": reply.prompt_tokens},
        )


def pieces_of_body(body: Mapping[str, Any]) -> Iterator[Piece]:
    """A body of chat completions, completions, the Responses API, Anthropic messages or SGLang's ``/generate``."""
    messages = body.get("messages")
    if not isinstance(messages, list):
        messages = messages_of_responses(body.get("instructions"), body.get("input"))
    if messages is not None:
        system = body.get("system")
        head = [{"role": "system", "content": system}] if isinstance(system, str | list) else []
        return chain(pieces_of_tools(body.get("tools")), pieces_of_messages([*head, *messages]))
    prompt: Any = next(
        (body[name] for name in ("prompt", "text", "prompt_token_ids", "input_ids") if body.get(name)), None
    )
    if isinstance(prompt, list) and prompt and isinstance(prompt[0], str | list):
        prompt = prompt[0]
    if isinstance(prompt, str):
        return pieces_of_text(prompt)
    return pieces_of_tokens(prompt) if is_token_ids(prompt) else iter(())


def is_token_ids(value: object) -> bool:
    return (
        isinstance(value, Sequence)
        and not isinstance(value, str)
        and len(value) > 0
        and set(map(type, value)) == {int}
        and min(value) >= 0
        and max(value) < 2**32
    )


def usage_of(response: object) -> dict[str, int | None]:
    """Token counts of a reply's ``usage``, by the names of ``Reply``."""
    usage = response.get("usage") if isinstance(response, Mapping) else None
    given = usage if isinstance(usage, Mapping) else {}
    details = given.get("prompt_tokens_details") or given.get("input_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, Mapping) else None
    return {
        "prompt_tokens": first_count(given.get("prompt_tokens"), given.get("input_tokens")),
        "cached_tokens": first_count(cached),
        "output_tokens": first_count(given.get("completion_tokens"), given.get("output_tokens")),
    }


def first_count(*values: object) -> int | None:
    return next((value for value in values if type(value) is int and 0 <= value < 2**31), None)


def first_text(*values: object) -> str | None:
    return next((value for value in values if isinstance(value, str) and value), None)


def time_ms(*values: object) -> float | None:
    """The first value that is a time."""
    for value in values:
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1e300:
            return next(value * scale for bound, scale in _MS_PER_UNIT if value >= bound)
        if isinstance(value, str) and value:
            try:
                moment = datetime.fromisoformat(value)
            except ValueError:
                if value.isdigit() and len(value) < 24:
                    return time_ms(int(value))
                continue
            return 1000.0 * (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    return None


def between_ms(start_ms: float | None, end_ms: float | None) -> float | None:
    return None if start_ms is None or end_ms is None or end_ms < start_ms else end_ms - start_ms
