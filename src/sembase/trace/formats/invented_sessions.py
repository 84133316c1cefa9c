"""Content for arrivals without any: conversations drawn so that a given fraction of prompt tokens repeats a prefix.

In: prompt and output lengths in time order; out: block keys. The lengths never change.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

OPEN_SESSIONS: Final = 4096  # beyond this, the conversation that was idle longest is closed
NEAREST: Final = 16  # a continued conversation is drawn from this many with the best fitting length


@dataclass(frozen=True, slots=True)
class DrawnPrompt:
    session: int
    keys: NDArray[np.int64]
    tokens: NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class _Conversation:
    """``length_tokens`` is prompt plus answer: the minimum length of the next turn's prompt."""

    length_tokens: int
    prompt_keys: NDArray[np.int64]


class InventedSessions:
    """While the fraction so far is below the target, a request continues a conversation that fits into its prompt.

    Its prompt starts with the whole blocks of that conversation's last prompt; the rest is new, including the answer in
    between, which was never part of a prompt. Costs the keys of at most 4,096 open conversations.
    """

    def __init__(self, prefix_share: float, block_tokens: int, seed: int) -> None:
        self._target = prefix_share
        self._block_tokens = block_tokens
        self._random = np.random.default_rng(seed)
        self._next_key = 0
        self._next_session = 0
        self._open: dict[int, _Conversation] = {}  # in the order of their last turns
        self._by_length: list[tuple[int, int]] = []  # (length_tokens, session), sorted
        self._shared_tokens = 0
        self._prompt_tokens = 0

    @property
    def achieved_share(self) -> float:
        return self._shared_tokens / self._prompt_tokens if self._prompt_tokens else 0.0

    def next_prompt(self, prompt_tokens: int, output_tokens: int) -> DrawnPrompt:
        self._prompt_tokens += prompt_tokens
        wants_more = self._shared_tokens < self._target * self._prompt_tokens
        session = self._draw(prompt_tokens) if wants_more else None
        prefix = np.empty(0, np.int64)
        if session is None:
            session = self._next_session
            self._next_session += 1
        else:
            prefix = self._close(session).prompt_keys
            self._shared_tokens += len(prefix) * self._block_tokens
        whole, tail_tokens = divmod(prompt_tokens, self._block_tokens)
        keys = np.concatenate([prefix, self._fresh_keys(whole + (tail_tokens > 0) - len(prefix))])
        self._remember(session, _Conversation(prompt_tokens + output_tokens, keys[:whole]))
        tokens = np.full(len(keys), self._block_tokens, np.int32)
        if tail_tokens:
            tokens[-1] = tail_tokens
        return DrawnPrompt(session, keys, tokens)

    def _draw(self, prompt_tokens: int) -> int | None:
        fitting = bisect_right(self._by_length, (prompt_tokens, self._next_session))
        if fitting == 0:
            return None
        return self._by_length[fitting - 1 - int(self._random.integers(min(fitting, NEAREST)))][1]

    def _fresh_keys(self, count: int) -> NDArray[np.int64]:
        first = self._next_key
        self._next_key += count
        return np.arange(first, first + count, dtype=np.int64)

    def _remember(self, session: int, conversation: _Conversation) -> None:
        if len(self._open) >= OPEN_SESSIONS:
            self._close(next(iter(self._open)))
        self._open[session] = conversation
        insort(self._by_length, (conversation.length_tokens, session))

    def _close(self, session: int) -> _Conversation:
        conversation = self._open.pop(session)
        del self._by_length[bisect_right(self._by_length, (conversation.length_tokens, session)) - 1]
        return conversation
