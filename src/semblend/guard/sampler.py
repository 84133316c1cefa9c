"""Which requests are checked: a share of them, by their ids alone, so that every process and every rerun agrees."""

from __future__ import annotations

import hashlib


def is_sampled(request_id: str, share: float) -> bool:
    """True for ``share`` of all ids. A client that chooses its own ids chooses this too: use the server's."""
    digest = hashlib.blake2b(
        request_id.encode(errors="surrogatepass"), digest_size=8, person=b"semblend guard"
    ).digest()
    return int.from_bytes(digest) < share * 2.0**64
