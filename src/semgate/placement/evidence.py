"""What the exact-prefix evidence of a case is worth at each candidate, in tokens, for all cache-aware policies."""

from __future__ import annotations

from typing import Final

from semgate.placement.case import Case
from semgate.placement.view import Floats

# A session is no evidence of what a replica holds: such a route is called cold, for this reason.
SESSION_HOME: Final = "its session was there last"


def cached_tokens(case: Case, announce_lag_s: float) -> Floats:
    """Leading tokens each candidate should hold by the indexes.

    With an index the session's last replica counts only while its announcements may be under way: afterwards the
    index knows better (the blocks may be evicted). Without one it is all there is.
    """
    tokens = case.cached_blocks * case.request.block_tokens
    asked = case.request.exact_blocks is not None or case.request.expected_blocks is not None
    if not asked or case.home_age_s <= announce_lag_s:
        add_session_home(case, tokens)
    return tokens


def add_session_home(case: Case, tokens: Floats) -> None:
    """The session's last replica holds its last prompt, unless that has been evicted since."""
    if case.home is not None:
        tokens[case.home] = max(tokens[case.home], min(case.home_tokens, case.request.prompt_tokens))
