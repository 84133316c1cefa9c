"""Which requests are checked: a fraction of them, by request id, so that every process and every rerun agrees."""

from __future__ import annotations

import hashlib


def is_sampled(request_id: str, fraction: float) -> bool:
    """True for ``fraction`` of all ids. Pass the server's id: a client that sets ids could choose what is checked."""
    digest = hashlib.blake2b(
        request_id.encode(errors="surrogatepass"), digest_size=8, person=b"semblend guard"
    ).digest()
    return int.from_bytes(digest) < fraction * 2.0**64
