"""Requests to a running SGLang server by token ids: its answers, its cache figures and its times."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@dataclass(frozen=True, slots=True)
class Reply:
    """``first_top``: the likeliest first tokens. ``forced``: log-probabilities of the prompt's own last tokens."""

    tokens: tuple[int, ...]
    text: str
    meta: Mapping[str, Any]
    first_token_s: float
    first_top: tuple[tuple[float, int], ...] = ()
    forced: tuple[float, ...] = ()

    @property
    def cached_tokens(self) -> int:
        return int(self.meta["cached_tokens"])

    @property
    def semblend(self) -> Mapping[str, Any] | None:
        reported = self.meta.get("semblend")
        found = [entry for entry in reported if entry is not None] if isinstance(reported, list) else []
        return found[0] if found else None

    @property
    def reused_tokens(self) -> int:
        return int(self.semblend["reused_tokens"]) if self.semblend is not None else 0


def generate(
    base_url: str,
    input_ids: Sequence[int],
    *,
    max_new_tokens: int = 16,
    top_logprobs: int = 0,
    score_from: int | None = None,
    semblend: Mapping[str, Any] | None = None,
    **more: Any,
) -> Reply:
    """One greedy answer, streamed, so that the first token's time is known. ``semblend``: hints of the request.

    ``score_from``: the prompt's tokens from here on are scored, not only the answer's.
    """
    sampling: dict[str, Any] = {"temperature": 0, "max_new_tokens": max_new_tokens, "ignore_eos": True}
    if semblend is not None:
        sampling["custom_params"] = {"semblend": dict(semblend)}
    body: dict[str, Any] = {"input_ids": list(input_ids), "sampling_params": sampling, "stream": True, **more}
    if top_logprobs or score_from is not None:
        body |= {"return_logprob": True, "top_logprobs_num": top_logprobs}
    if score_from is not None:
        body["logprob_start_len"] = score_from
    request = urllib.request.Request(
        f"{base_url}/generate", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    started = time.monotonic()
    first_s, last, reported = 0.0, {}, None
    with _direct.open(request, timeout=600) as stream:
        for raw in stream:
            line = raw.decode().strip()
            if not line.startswith("data: {"):
                continue
            last = json.loads(line.removeprefix("data: "))
            first_s = first_s or time.monotonic() - started
            reported = reported or last.get("meta_info", {}).get("semblend")
    if "error" in last:
        raise RuntimeError(str(last["error"]))
    meta = dict(last["meta_info"]) | ({"semblend": reported} if reported else {})
    top = meta.get("output_top_logprobs") or []
    first = tuple((float(entry[0]), int(entry[1])) for entry in top[0]) if top else ()
    scored = tuple(float(entry[0]) for entry in meta.get("input_token_logprobs") or () if entry[0] is not None)
    return Reply(tuple(last.get("output_ids", ())), last.get("text", ""), meta, first_s, first, scored)


def flush(base_url: str) -> None:
    """Empties the tree; waits while the engine still lets go of a finished request."""
    deadline = time.monotonic() + 300
    while True:
        request = urllib.request.Request(f"{base_url}/flush_cache", method="POST")
        try:
            with _direct.open(request, timeout=300) as answer:
                if answer.status == 200:
                    return
        except urllib.error.HTTPError:
            if time.monotonic() > deadline:
                raise
        time.sleep(0.1)
