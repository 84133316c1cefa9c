"""Whether a client names the cache entry of its media: vLLM caches media under a part's ``uuid``, without the salt.

In: a body; out: yes or no. Names are searched as JSON may write them, in the bytes of the members that carry parts, so
nothing is parsed into objects and the schema of a tool may have a property of that name.
"""

from __future__ import annotations

import re
from typing import Final

from semgate.router.request.members import raw_members

_CARRIERS: Final = ("messages", "input")
# A whole name: quotes inside a JSON string are escaped, so text that mentions it does not match.
_NAME: Final = re.compile(rb'"(?:u|\\u0075){2}(?:i|\\u0069)(?:d|\\u0064)"\s*:')


def names_media(body: bytes) -> bool:
    """Also true of a body with that name that is not plain JSON: an engine might read it."""
    if b"uuid" not in body and b"\\u00" not in body:
        return False
    if _NAME.search(body) is None:
        return False
    try:
        members = raw_members(body)
    except (ValueError, RecursionError):
        return True
    return any(_NAME.search(memoryview(members[name])) for name in _CARRIERS if name in members)
