"""Own donors made findable for other replicas: announced when the engine has written their last page to its storage.

Nothing of a donor is copied: the record names its tokens and vouches for the pages that this replica wrote.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from semblend.fleet.directory.base import DirectoryError
from semblend.fleet.donor_object import WRITER_BYTES
from semblend.fleet.page_records import pack_record, read_record
from semblend.fleet.suggestions import announce_record
from semblend.integration.core.donor_judge import MIN_GAIN_TOKENS
from semblend.integration.sglang.written_pages import WrittenPages

if TYPE_CHECKING:
    from semblend.contract import Namespace
    from semblend.integration.border import Border
    from semblend.integration.sglang.fleet_spaces import FleetSpaces
    from semblend.integration.sglang.namespace import TreeTenant

MAX_PENDING: Final = 256  # donors whose pages the engine has not written yet; the oldest are left out
HashesOf = Callable[[NDArray[np.uint32], "TreeTenant"], list[str]]

logger = logging.getLogger("sglang.semblend")


@dataclass(frozen=True, slots=True, eq=False)
class _Donor:
    tokens: NDArray[np.uint32]
    namespace: Namespace
    hashes: list[str]


class DonorAnnouncements:
    """``added`` is called by the scheduler, the rest of the work is done on a thread."""

    def __init__(self, spaces: FleetSpaces, hashes_of: HashesOf, page_tokens: int, border: Border) -> None:
        self.written = WrittenPages(self._stored)
        self._spaces = spaces
        self._hashes_of = hashes_of
        self._page_tokens = page_tokens
        self._border = border
        self._writer = secrets.token_bytes(WRITER_BYTES)
        self._lock = threading.Lock()
        self._pending: OrderedDict[str, _Donor] = OrderedDict()  # by the hash of their last page
        self._pool = ThreadPoolExecutor(1, "semblend-announce")

    def added(self, tokens: NDArray[np.uint32], namespace: Namespace, tenant: TreeTenant) -> None:
        if self._spaces.keys_of(namespace) is not None:
            self._submit(partial(self._prepare, tokens, namespace, tenant))

    def forget_all(self) -> None:
        """The tree was emptied. Pages in the storage and their announcements stay."""
        with self._lock:
            self._pending.clear()
        self.written.clear()

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _submit(self, work: Callable[[], None]) -> None:
        try:
            self._pool.submit(self._border.call, "fleet", "", work, None)
        except RuntimeError:  # the engine still writes while it shuts down
            return

    # -- on other threads ----------------------------------------------------------------------------------------------

    def _stored(self, hashes: Sequence[str]) -> None:
        with self._lock:
            complete = [self._pending.pop(page_hash) for page_hash in hashes if page_hash in self._pending]
        for donor in complete:
            self._submit(partial(self._announce, donor))

    def _prepare(self, tokens: NDArray[np.uint32], namespace: Namespace, tenant: TreeTenant) -> None:
        donor = _Donor(tokens, namespace, self._hashes_of(tokens, tenant))
        last = donor.hashes[-1]
        with self._lock:
            self._pending[last] = donor
            if len(self._pending) > MAX_PENDING:
                self._pending.popitem(last=False)
        if self.written.has(last):
            self._stored([last])

    def _announce(self, donor: _Donor) -> None:
        """Unless too little of it is vouched for. A record that vouches for more is renewed instead of replaced."""
        keys = self._spaces.keys_of(donor.namespace)
        if keys is None:
            return
        digests = self.written.digests(donor.hashes)
        tagged = sum(digest is not None for digest in digests)
        donor_id, directory = keys.donor_id(donor.tokens), self._spaces.directory
        try:
            (found,) = directory.records(keys.space, [donor_id])
            known = None if found is None else read_record(keys, donor_id, found, self._page_tokens)
            if found is not None and known is not None and known.tagged_pages >= tagged:
                announce_record(directory, keys, donor_id, donor.tokens, found)
            elif tagged * self._page_tokens >= MIN_GAIN_TOKENS:
                record = pack_record(keys, self._writer, donor.tokens, self._page_tokens, digests)
                announce_record(directory, keys, donor_id, donor.tokens, record)
        except DirectoryError as error:
            logger.debug("%s", error)
