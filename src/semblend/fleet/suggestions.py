"""From a prompt to donors of other replicas, and from a donor to its announcement. Tokens in, verified tokens out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from semblend.fingerprint.anchors import select_anchors, thin_periodic
from semblend.fingerprint.keyed import keyed_anchors
from semblend.fleet.directory.base import Directory
from semblend.fleet.keys import SpaceKeys

MAX_DONORS: Final = 8  # per prompt: those that share most anchors with it
MAX_ANCHORS: Final = 8192  # per prompt, spread evenly: a prompt of 128K tokens has about as many
_VERSION: Final = b"\1"


@dataclass(frozen=True, slots=True, eq=False)
class RemoteDonor:
    """A donor of the fleet: its tokens are proven by its id, its KV is elsewhere."""

    donor_id: str
    tokens: NDArray[np.uint32]


def suggest(
    directory: Directory, keys: SpaceKeys, tokens: NDArray[np.uint32], is_known: Callable[[str], bool]
) -> list[RemoteDonor]:
    """Donors that share content with a prompt, most of it first, without those that ``is_known`` here.

    Raises ``DirectoryError``. Costs two round trips.
    """
    donors = (_read(keys, *found) for found in suggested_records(directory, keys, tokens, is_known))
    return [donor for donor in donors if donor is not None]


def suggested_records(
    directory: Directory, keys: SpaceKeys, tokens: NDArray[np.uint32], is_known: Callable[[str], bool]
) -> list[tuple[str, bytes]]:
    """The same with the records as they are in the directory, whatever their format."""
    anchors = np.unique(select_anchors(tokens).hashes)
    if len(anchors) > MAX_ANCHORS:
        anchors = anchors[:: -(-len(anchors) // MAX_ANCHORS)]
    if not len(anchors):
        return []
    found = directory.look_up(keys.space, keyed_anchors(anchors, keys.salts))
    votes = Counter(donor_id for donor_id in found if donor_id is not None and not is_known(donor_id))
    wanted = [donor_id for donor_id, _ in votes.most_common(MAX_DONORS)]
    if not wanted:
        return []
    records = directory.records(keys.space, wanted)
    return [(donor_id, record) for donor_id, record in zip(wanted, records, strict=True) if record is not None]


def announce(directory: Directory, keys: SpaceKeys, donor_id: str, tokens: NDArray[np.uint32]) -> None:
    """Let other replicas find a donor whose KV the carrier has. Raises ``DirectoryError``."""
    announce_record(directory, keys, donor_id, tokens, _VERSION + _raw(tokens))


def announce_record(
    directory: Directory, keys: SpaceKeys, donor_id: str, tokens: NDArray[np.uint32], record: bytes
) -> None:
    """The same with a record of another format."""
    anchors = np.unique(thin_periodic(select_anchors(tokens)).hashes)
    directory.announce(keys.space, donor_id, record, keyed_anchors(anchors, keys.salts))


def _read(keys: SpaceKeys, donor_id: str, record: bytes) -> RemoteDonor | None:
    """None for a record of another format, or not of this donor."""
    if record[:1] != _VERSION or len(record) % 4 != 1:
        return None
    tokens = np.frombuffer(record, "<u4", offset=1).astype(np.uint32)
    return RemoteDonor(donor_id, tokens) if keys.donor_id(tokens) == donor_id else None


def _raw(tokens: NDArray[np.uint32]) -> bytes:
    return tokens.astype("<u4").tobytes()
