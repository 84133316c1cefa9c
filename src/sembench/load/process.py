"""What the process itself needs for a load: enough sockets, and a garbage collector that does not stop it midway."""

from __future__ import annotations

import gc
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from sembase.errors import ConfigurationError

_FILES_OF_OUR_OWN: Final = 64
_MOST_SOCKETS: Final = 60_000  # ports of one client address towards one server


def allow_sockets(wanted: int | None) -> int:
    """Raises the soft limit of open files as far as needed and allowed; returns how many sockets that makes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _MOST_SOCKETS if hard == resource.RLIM_INFINITY else min(_MOST_SOCKETS, hard - _FILES_OF_OUR_OWN)
    sockets = most if wanted is None else wanted
    if sockets > most:
        raise ConfigurationError(f"{wanted} connections need more open files than the limit of {hard}; see ulimit -Hn")
    needed = sockets + _FILES_OF_OUR_OWN
    if soft != resource.RLIM_INFINITY and soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
    return sockets


@contextmanager
def quiet_collector() -> Iterator[None]:
    """What lives at the start is set aside, so that a full collection during the load has little to look through."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
