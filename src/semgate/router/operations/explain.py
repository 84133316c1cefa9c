"""Why a request was placed where it was: its decision fetched from a running router, and as readable text.

Called by `kvmend explain`.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Final
from urllib.parse import quote, urlsplit

from sembase.errors import ConfigurationError
from sembase.http.client import HttpFault, describe_fault, fetch_once
from semgate.router.state.decisions import Attempt, DecisionRecord, record_from_json

TIMEOUT_SECONDS: Final = 10.0
ROUTES = {
    "exact_route": "a replica holds the leading blocks, as far as the router knows; the engine decides what it uses",
    "semantic_placement": "a replica announced matching donors or was sent similar content before; the engine "
    "decides what it uses",
    "cold_route": "no replica is known to hold any of the prompt, or queueing there would cost more",
    "error_fallback": "placement failed; the least loaded replica took the request",
}
OUTCOMES = {
    "complete": "answered completely",
    "cut": "the replica died after the first byte; the client got an error event and a closed connection",
    "client_left": "the client disconnected; the connection to the replica was closed",
    "refused": "no replica could answer; the client got an error",
}


def fetch_decisions(admin_url: str, request_id: str, key: str, ca_file: Path | None) -> list[DecisionRecord]:
    """Those with this id that the router keeps, newest first; ids are the clients', so several tenants may use one."""
    parts = urlsplit(admin_url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigurationError(f"invalid URL '{admin_url}' (expected --admin-url https://127.0.0.1:8021)")
    try:
        status, body = fetch_once(
            "GET",
            f"{parts.scheme}://{parts.netloc}/admin/decisions/{quote(request_id, safe='')}",
            headers=((b"authorization", f"Bearer {key}".encode("latin-1", "replace")),),
            timeout_s=TIMEOUT_SECONDS,
            ca_file=ca_file,
        )
    except HttpFault as fault:
        raise ConfigurationError(f"cannot reach {admin_url}: {describe_fault(fault)}") from None
    if status == 404:
        return []
    if status == 401:
        raise ConfigurationError(f"{admin_url} rejected the key; pass the router's own with --admin-api-key-file")
    if status != 200:
        raise ConfigurationError(f"{admin_url} answered with status {status}; is it the admin surface?")
    try:
        return [record_from_json(each) for each in json.loads(body)["decisions"]]
    except (ValueError, KeyError, TypeError):
        raise ConfigurationError(f"{admin_url} did not answer with decisions") from None


def explain(record: DecisionRecord) -> str:
    at = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(record.at_unix_ms / 1000))
    lines = [
        f"request {record.request_id} at {at}: {record.path}",
        f"  placed on   {record.replica or 'no replica'} by {record.policy} ({record.decide_us:.0f} us)",
        f"  route       {record.route}: {ROUTES.get(record.route, 'not known to this version')}",
        f"  reason      {record.reason}",
        f"  evidence    {_evidence(record)}",
        f"  tenant      {record.tenant}, session {record.session or 'none'} (keyed digests)",
    ]
    if record.scores_ms:
        lines.append("  scores      expected prefill saving minus queueing delay, in ms:")
        ranked = sorted(record.scores_ms, key=lambda each: -each[1])
        lines += [f"                {name:<32} {ms:>10.1f}" for name, ms in ranked]
    lines += [f"  attempt {number}   {_attempt(each)}" for number, each in enumerate(record.attempts, 1)]
    if record.prompt_tokens is not None:
        cached = "not reported" if record.cached_tokens is None else f"{record.cached_tokens}"
        lines.append(f"  engine      reported {record.prompt_tokens} prompt tokens, cached: {cached}")
    lines.append(f"  outcome     {OUTCOMES.get(record.outcome, record.outcome)}{_times(record)}")
    return "\n".join(lines) + "\n"


def _evidence(record: DecisionRecord) -> str:
    blocks = f"{record.exact_blocks} of {record.prompt_blocks} blocks" if record.prompt_blocks else "no blocks"
    similarity = "" if record.similarity is None else f", similarity {record.similarity:.3f}"
    return f"{blocks} exact, {record.donor_tokens} donor tokens{similarity}"


def _attempt(attempt: Attempt) -> str:
    answered = f"status {attempt.status}" if attempt.status is not None else "no answer"
    fault = f", {attempt.fault}" if attempt.fault else ""
    return f"{attempt.replica}: {answered}{fault} after {attempt.ms:.1f} ms"


def _times(record: DecisionRecord) -> str:
    status = "" if record.status is None else f", status {record.status}"
    first = "" if record.first_byte_ms is None else f", first byte after {record.first_byte_ms:.1f} ms"
    token = "" if record.ttft_ms is None else f", first token after {record.ttft_ms:.1f} ms"
    return f"{status}{first}{token}, complete after {record.total_ms:.1f} ms, {record.answer_bytes} bytes"
