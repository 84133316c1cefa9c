"""An exchange to one trace record: labelled blocks, keyed digests, observed times. Text only if enabled.

In: `Exchange`; out: ``semantic_kv.trace.v1``, or None if the request has no prompt. Runs in the writer's thread. A
record that does not have all of its text has content digests, which show repeats at any position.
"""

from __future__ import annotations

import secrets
from itertools import count
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sembase.segment.pieces import Piece
from sembase.tokenizer import Tokenizer
from sembase.trace.content_digests import GRAM, ContentDigests
from sembase.trace.digest_tokens import digest_tokens
from sembase.trace.record import TraceBlock, TraceRecord
from sembase.trace.token_rows import TokenRows, unknown_tokens
from semgate.http.reply_scan import ReplyFacts
from semgate.http.request_body import Asked, read_request
from semgate.prompt.digest import Digests
from semgate.prompt.pieces import prompt_pieces
from semgate.proxy.exchange import Exchange

_NO_FACTS: Final = ReplyFacts(None, None, None, None, None, has_error=False, is_done=False, events=0)


class RecordMaker:
    def __init__(self, digests: Digests, *, redact_text: bool, tokenizer: Tokenizer | None = None) -> None:
        self._digests = digests
        self._redact = redact_text
        self._rows = TokenRows(tokenizer)
        if redact_text:  # compile before the first exchange: records that wait for it at shutdown would be dropped
            self._content_digests("", [np.zeros(GRAM, np.uint32)])

    def record_of(self, exchange: Exchange) -> TraceRecord | None:
        asked = read_request(exchange.path, exchange.headers, exchange.body, exchange.tenant)
        pieces = list(prompt_pieces(asked, exchange.body))
        if not pieces:
            return None
        contents = [self._digests.of(exchange.tenant, "content", piece.content) for piece in pieces]
        rows = [self._tokens(digest, piece) for digest, piece in zip(contents, pieces, strict=True)]
        blocks = tuple(map(self._block, contents, pieces, rows, count()))
        is_whole = all(block.text is not None for block in blocks)
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
            tokenizer=None if asked.prompt_tokens is not None else self._rows.tokenizer.name,
            content_digests=None if is_whole else self._content_digests(exchange.tenant, rows),
            metadata=_about(exchange, asked, facts),
        )

    def _block(self, digest: str, piece: Piece, row: NDArray[np.uint32], position: int) -> TraceBlock:
        return TraceBlock(
            semantic_type=piece.label,
            token_count=len(row),
            content_hash=digest,
            text=None if self._redact or piece.text is None else _writable(piece.text),
            position=position,
            metadata={"media": piece.media} if piece.media is not None else {},
        )

    def _tokens(self, digest: str, piece: Piece) -> NDArray[np.uint32]:
        """The tokens of a text, the ids of a prompt that was given as ids, or one unknown token for a picture."""
        if piece.text is not None:
            return self._rows.of_text(digest, piece.text)
        if piece.media is not None:
            return unknown_tokens(digest, piece.tokens or 1)
        return np.frombuffer(piece.content, "<u4")

    def _content_digests(self, tenant: str, rows: list[NDArray[np.uint32]]) -> ContentDigests:
        return digest_tokens(np.concatenate(rows), self._digests.key_of_contents(tenant))

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
