from __future__ import annotations

import json

from sembench.http.client import decode
from sembench.live.engine import backend_of_reply

REPORT = {"outcome": "backend_materialized_reuse", "reused_tokens": 96, "computed_tokens": 16, "exact_tokens": 32}


def event(text: str, **meta: object) -> bytes:
    return json.dumps({"text": text, "meta_info": {"id": "r", "cached_tokens": 3, **meta}}).encode()


def test_what_the_adapter_reported_with_the_first_token_is_kept() -> None:
    decoded = decode("sglang_generate", [event("a", semblend=[REPORT]), event("ab"), event("abc", semblend=[None])])
    assert decoded.backend is not None
    assert decoded.backend["exact_tokens"] == 32
    row = backend_of_reply("r", decoded.backend)
    assert row is not None
    assert (row.outcome, row.reused_tokens, row.computed_tokens) == ("backend_materialized_reuse", 96, 16)


def test_a_server_that_says_nothing_gives_no_evidence() -> None:
    decoded = decode("sglang_generate", [event("a"), event("ab", semblend=[None, None]), event("abc")])
    assert decoded.backend is not None
    assert backend_of_reply("r", decoded.backend) is None
