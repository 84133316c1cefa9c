"""Session -> the replica that served it last. Bounded: the least recently used session is evicted first.

About 300 bytes and 2 us per session regardless of the length of its id: keys are digests that include the tenant, so
that no tenant can name another's session.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from sembase.errors import ConfigurationError

MAX_CHANGES: Final = 10_000  # not yet reported to other routers; beyond that the oldest are not reported


@dataclass(frozen=True, slots=True)
class Home:
    replica: str
    prompt_tokens: int
    at_s: float


class SessionHomes:
    def __init__(self, max_sessions: int = 100_000, keep_s: float = 3_600.0) -> None:
        if max_sessions < 1 or keep_s <= 0.0:
            raise ConfigurationError("max_sessions must be at least 1 and keep_s greater than 0")
        self._max_sessions = max_sessions
        self._keep_s = keep_s
        self._homes: OrderedDict[bytes, Home] = OrderedDict()
        self._changes: dict[bytes, Home] | None = None

    def __len__(self) -> int:
        return len(self._homes)

    def find(self, tenant: str, session: str | None, now_s: float) -> Home | None:
        if session is None:
            return None
        home = self._homes.get(_key(tenant, session))
        return home if home is not None and now_s - home.at_s <= self._keep_s else None

    def note(self, tenant: str, session: str | None, replica: str, prompt_tokens: int, now_s: float) -> None:
        if session is None:
            return
        key = _key(tenant, session)
        home = Home(replica, prompt_tokens, now_s)
        self._set(key, home, now_s)
        if self._changes is not None:
            self._changes.pop(key, None)  # the newest comes last
            self._changes[key] = home
            if len(self._changes) > MAX_CHANGES:
                del self._changes[next(iter(self._changes))]

    def share(self) -> None:
        """From now on ``take_changes`` returns what was noted."""
        self._changes = {}

    def take_changes(self) -> dict[bytes, Home]:
        """The sessions noted since the last call, by key."""
        changes, self._changes = self._changes or {}, {}
        return changes

    def give_back_changes(self, taken: dict[bytes, Home]) -> None:
        """They could not be reported: the next ``take_changes`` returns them, or what was noted since."""
        kept = list((taken | (self._changes or {})).items())
        self._changes = dict(kept[-MAX_CHANGES:])

    def learn(self, key: bytes, replica: str, prompt_tokens: int, at_s: float, now_s: float) -> None:
        """What another router noted; the later of the two counts."""
        known = self._homes.get(key)
        if (known is None or known.at_s < at_s) and now_s - at_s <= self._keep_s:
            self._set(key, Home(replica, prompt_tokens, at_s), now_s)

    def _set(self, key: bytes, home: Home, now_s: float) -> None:
        self._homes[key] = home
        self._homes.move_to_end(key)
        while len(self._homes) > self._max_sessions or self._oldest_is_stale(now_s):
            self._homes.popitem(last=False)

    def _oldest_is_stale(self, now_s: float) -> bool:
        return bool(self._homes) and now_s - next(iter(self._homes.values())).at_s > self._keep_s


def _key(tenant: str, session: str) -> bytes:
    name = tenant.encode("utf-8", "surrogatepass")
    digest = hashlib.blake2b(len(name).to_bytes(8, "big") + name, digest_size=16)
    digest.update(session.encode("utf-8", "surrogatepass"))
    return digest.digest()
