"""Leading tokens each candidate should hold, from exact-prefix evidence; shared by all cache-aware policies."""

from __future__ import annotations

from typing import Final

from semgate.placement.case import Case
from semgate.placement.view import Floats

# A session is not evidence of what a replica holds: such a route is reported as cold, with this reason.
SESSION_HOME: Final = "served the session last"


def cached_tokens(case: Case, announce_lag_s: float) -> Floats:
    """Leading tokens each candidate should hold according to the indexes.

    With an index, the session's last replica counts only while its announcements may be in transit. After that the
    index is more accurate (the blocks may be evicted). Without an index the session is the only evidence.
    """
    tokens = case.cached_blocks * case.request.block_tokens
    has_index = case.request.exact_blocks is not None or case.request.expected_blocks is not None
    if not has_index or case.home_age_s <= announce_lag_s:
        add_session_home(case, tokens)
    return tokens


def add_session_home(case: Case, tokens: Floats) -> None:
    """The session's last replica holds its last prompt, unless that has been evicted since."""
    if case.home is not None:
        tokens[case.home] = max(tokens[case.home], min(case.home_tokens, case.request.prompt_tokens))
