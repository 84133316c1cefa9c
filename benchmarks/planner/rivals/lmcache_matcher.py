"""LMCache's ``BlendTokenRangeMatcher``: chunks stored on a grid, found at any offset of the prompt.

Runs under the rival's own interpreter: ``python -m benchmarks.planner.rivals.lmcache_matcher CHUNK_TOKENS``.
"""

from __future__ import annotations

import hashlib
import sys
from typing import Any

from lmcache.v1.multiprocess.modules.blend.matcher import BlendTokenRangeMatcher

from benchmarks.planner.subject import FoundRun, StoreFullError
from benchmarks.planner.tokens import DONOR_TOKENS, Tokens
from benchmarks.planner.worker import serve


class LMCacheMatcher:
    """Token hashes are chained over the prefix, as LMCache's own hasher does; making them is not on the clock."""

    def __init__(self, chunk_tokens: int) -> None:
        self._chunk = chunk_tokens
        self._matcher: Any = None

    def open(self, donor_count: int) -> None:
        for _ in range(2):
            self._matcher = BlendTokenRangeMatcher(chunk_size=self._chunk)
            if _ == 0:  # the first one only compiles
                tokens = list(range(DONOR_TOKENS))
                self._matcher.on_new_token_hashes(tokens, [bytes([i]) for i in range(len(tokens) // self._chunk)])
                self._matcher.match_sub_sequence(tokens)

    def native_donor(self, number: int, tokens: Tokens) -> Any:
        return tokens.tolist(), _chained_hashes(tokens, self._chunk)

    def register(self, number: int, native: Any) -> None:
        capacity = self._matcher._TABLE_SIZE
        if len(self._matcher._chunk_token_hash) + len(native[1]) > capacity:
            raise StoreFullError(f"table full: {capacity} chunks of {self._chunk} tokens")
        self._matcher.on_new_token_hashes(*native)

    def native_prompt(self, tokens: Tokens) -> Any:
        return tokens.tolist()

    def lookup(self, native: Any) -> Any:
        return self._matcher.match_sub_sequence(native)

    def found_runs(self, answer: Any) -> list[FoundRun]:
        return [FoundRun(-1, match.old_st, match.cur_st, match.cur_ed - match.cur_st) for match in answer]

    def accounted_bytes(self) -> int | None:
        return None


def _chained_hashes(tokens: Tokens, chunk: int) -> list[bytes]:
    hashes: list[bytes] = []
    previous = b""
    for start in range(0, tokens.size - chunk + 1, chunk):
        previous = hashlib.blake2b(previous + tokens[start : start + chunk].tobytes(), digest_size=32).digest()
        hashes.append(previous)
    return hashes


if __name__ == "__main__":
    serve(LMCacheMatcher(int(sys.argv[1])))
