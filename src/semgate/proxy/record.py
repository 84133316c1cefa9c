"""An exchange to one trace record: labelled blocks, keyed digests, observed times. Text only if enabled.

In: `Exchange`; out: ``semantic_kv.trace.v1``, or None if the request has no prompt. Runs in the writer's thread.
"""

from __future__ import annotations

import secrets
from typing import Any, Final

from sembase.tokenizer import Tokenizer, open_tokenizer
from sembase.trace.record import TraceBlock, TraceRecord
from semgate.http.reply_scan import ReplyFacts
from semgate.http.request_body import Asked, read_request
from semgate.prompt.digest import Digests
from semgate.prompt.pieces import Piece, prompt_pieces
from semgate.proxy.exchange import Exchange

KNOWN_BLOCKS: Final = 65_536  # cached token counts, least recently used evicted; about 180 bytes each
_NO_FACTS: Final = ReplyFacts(None, None, None, None, None, has_error=False, is_done=False, events=0)


class RecordMaker:
    def __init__(self, digests: Digests, *, redact_text: bool, tokenizer: Tokenizer | None = None) -> None:
        self._digests = digests
        self._redact = redact_text
        self._tokenizer = tokenizer or open_tokenizer(None)
        self._known_tokens: dict[str, int] = {}

    def record_of(self, exchange: Exchange) -> TraceRecord | None:
        asked = read_request(exchange.path, exchange.headers, exchange.body, exchange.tenant)
        pieces = prompt_pieces(asked, exchange.body)
        blocks = tuple(self._block(exchange.tenant, piece, position) for position, piece in enumerate(pieces))
        if not blocks:
            return None
        facts = exchange.scan.facts() if exchange.scan is not None else _NO_FACTS
        is_ok = exchange.outcome == "ok"
        is_reported = facts.prompt_tokens is not None and facts.cached_tokens is not None
        return TraceRecord(
            request_id=secrets.token_hex(12),
            timestamp_ms=exchange.arrived_unix_ms,
            blocks=blocks,
            session_id=self._session(exchange.tenant, asked),
            tenant_id=self._digests.of(exchange.tenant, "tenant", b""),
            model_name=self._model(asked.model),
            output_tokens=facts.output_tokens if is_ok else None,
            observed_ttft_ms=_ms(exchange.asked_s, facts.first_token_s) if is_ok else None,
            observed_total_latency_ms=_ms(exchange.asked_s, exchange.ended_s) if is_ok else None,
            observed_prefix_hit_tokens=facts.cached_tokens if is_ok else None,
            observed_prefill_tokens=max(0, (facts.prompt_tokens or 0) - (facts.cached_tokens or 0))
            if is_ok and is_reported
            else None,
            metadata=_about(exchange, asked, facts),
        )

    def _block(self, tenant: str, piece: Piece, position: int) -> TraceBlock:
        digest = self._digests.of(tenant, "content", piece.content)
        return TraceBlock(
            semantic_type=piece.label,
            token_count=piece.tokens if piece.tokens is not None else self._tokens(digest, piece.text or ""),
            content_hash=digest,
            text=None if self._redact or piece.text is None else _writable(piece.text),
            position=position,
            metadata={"media": piece.media} if piece.media is not None else {},
        )

    def _tokens(self, digest: str, text: str) -> int:
        """Cached, because a block returns with every turn of its session."""
        known = self._known_tokens
        tokens = known.pop(digest, None)
        if tokens is None:
            tokens = max(1, self._tokenizer.count(text))
            if len(known) >= KNOWN_BLOCKS:
                del known[next(iter(known))]
        known[digest] = tokens
        return tokens

    def _session(self, tenant: str, asked: Asked) -> str | None:
        named = asked.session or asked.user
        return None if named is None else self._digests.of(tenant, "session", named.encode("utf-8", "surrogatepass"))

    def _model(self, model: str | None) -> str | None:
        """A model name is the client's text and may contain anything; not every server checks it."""
        if model is None or not self._redact:
            return None if model is None else _writable(model)
        return self._digests.of("", "model", model.encode("utf-8", "surrogatepass"))


def _about(exchange: Exchange, asked: Asked, facts: ReplyFacts) -> dict[str, Any]:
    about: dict[str, Any] = {
        "path": exchange.path,
        "outcome": exchange.outcome,
        "stream": asked.stream,
        "body_bytes": asked.body_bytes,
    }
    optional = {
        "status": exchange.status,
        "fault": exchange.fault,
        "finish": facts.finish,
        "prompt_tokens": facts.prompt_tokens,
        "first_byte_ms": _ms(exchange.asked_s, exchange.first_byte_s),
        "stream_events": facts.events or None,
        "n": asked.n if asked.n > 1 else None,
        "prompts": asked.prompts if asked.prompts > 1 else None,
        "media_parts": asked.media_parts or None,
    }
    return about | {name: value for name, value in optional.items() if value is not None}


def _ms(start_s: float, end_s: float | None) -> float | None:
    return None if end_s is None else round(1000.0 * max(0.0, end_s - start_s), 3)


def _writable(text: str) -> str:
    """UTF-8 cannot encode lone surrogates."""
    return text.encode("utf-8", "replace").decode("utf-8")
