"""Announcements as adapters make them, without a socket: real anchors under a test key, one worker per name."""

from __future__ import annotations

import time

import numpy as np
from numpy.typing import NDArray

from semblend.contract.donor_event import (
    DonorAnnounced,
    DonorBatch,
    DonorEvent,
    anchor_salts,
    namespace_digest,
    tenant_of_salt,
)
from semblend.fingerprint.anchors import GRAM, select_anchors, thin_periodic
from semblend.fingerprint.keyed import keyed_anchors

KEY = b"a key for tests only"
Tokens = NDArray[np.uint32]


def words(seed: int, length: int) -> Tokens:
    return np.random.default_rng(seed).integers(0, 50_000, length).astype(np.uint32)


def announced(donor_id: str, tokens: Tokens, salt: str | None = None, lora: str | None = None) -> DonorAnnounced:
    namespace = namespace_digest(KEY, tenant_of_salt(salt), lora)
    positions, hashes = thin_periodic(select_anchors(tokens))
    anchors = keyed_anchors(hashes, anchor_salts(KEY, namespace))
    return DonorAnnounced(
        donor_id,
        namespace,
        len(tokens),
        GRAM,
        anchors.astype("<u8").tobytes(),
        positions.astype("<u4").tobytes(),
    )


def batch(*events: DonorEvent, rank: int = 0, at: float | None = None) -> DonorBatch:
    return DonorBatch(time.time() if at is None else at, events, rank)
