"""Tenants that share nothing, and entries whose donors are gone. Real directory, real carrier of files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.targets import Verdict
from semblend.fleet.carrier.files import FileCarrier
from semblend.fleet.directory.base import Directory
from semblend.fleet.donor_object import RowShape
from semblend.fleet.keys import SpaceKeys
from semblend.fleet.sealed_donors import FetchOutcome, SealedDonors
from semblend.fleet.suggestions import announce, suggest

Tokens = NDArray[np.uint32]
VOCABULARY = 49_152
SHAPE = RowShape(layers=1, sides=2, heads=1, row_bytes=8)
SECRET = bytes(range(32))


def fuzzed_prompts(count: int, seed: int) -> Iterator[Tokens]:
    """Pieces of a common text in random order between random tokens, 64 to 440 tokens: tenants that ask the same."""
    random = np.random.default_rng([seed, count])
    common = random.integers(0, VOCABULARY, 64 * count + 128, dtype=np.uint32)
    for _ in range(count):
        parts = []
        for _ in range(int(random.integers(1, 4))):
            start = int(random.integers(0, common.size - 128))
            parts += [
                random.integers(0, VOCABULARY, int(random.integers(0, 20)), dtype=np.uint32),
                common[start : start + int(random.integers(64, 128))],
            ]
        yield np.concatenate(parts)


def tenant_verdicts(directory: Directory, entries: Any, count: int, seed: int) -> list[Verdict]:
    """The same prompts under two tenants. ``entries`` is a client of the directory's server, which must be empty."""
    one, two, three = (SpaceKeys.derive(SECRET, f"tenant {name}") for name in ("one", "two", "three"))
    prompts = list(fuzzed_prompts(count, seed))
    for keys in (one, two):
        for tokens in prompts:
            announce(directory, keys, keys.donor_id(tokens), tokens)
    names = [_without_space(entries, keys) for keys in (one, two)]
    common = len(names[0] & names[1])
    foreign = sum(bool(suggest(directory, three, tokens, lambda _: False)) for tokens in prompts)
    own_ids = {two.donor_id(tokens) for tokens in prompts}
    crossed, found = 0, 0
    for tokens in prompts:
        suggested = suggest(directory, two, tokens, lambda _: False)
        crossed += sum(donor.donor_id not in own_ids for donor in suggested)
        found += any(donor.donor_id == two.donor_id(tokens) for donor in suggested)
    about = f"{count:,} fuzzed prompts"
    return [
        Verdict(f"{about}: suggestions to a tenant without donors", "==", 0, foreign, is_law=True),
        Verdict(f"{about}: suggestions of another tenant's donors", "==", 0, crossed, is_law=True),
        Verdict(f"{about}: anchors or ids that two tenants have in common", "==", 0, common, is_law=True),
        Verdict(f"{about}: control, own suggestions", ">=", 0.5 * count, found),
    ]


def stale_verdicts(directory: Directory, folder: Path, count: int, seed: int) -> list[Verdict]:
    """Announced donors without bytes: each costs one missed read, is withdrawn, and is not suggested again."""
    keys = SpaceKeys.derive(SECRET, "stale")
    donors = SealedDonors(FileCarrier(str(folder), 1 << 30), SHAPE, bytes(16))
    prompts = list(fuzzed_prompts(count, seed + 1))
    for tokens in prompts:
        announce(directory, keys, keys.donor_id(tokens), tokens)
    served, missing, again = 0, 0, 0
    for tokens in prompts:
        donor_id = keys.donor_id(tokens)
        into = np.zeros((SHAPE.layers, SHAPE.sides, tokens.size, SHAPE.heads, SHAPE.row_bytes), np.uint8)
        fetched = donors.fetch(keys, donor_id, tokens.size, into)
        served += fetched.outcome is FetchOutcome.FETCHED
        missing += fetched.outcome is FetchOutcome.MISSING
        directory.withdraw(keys.space, donor_id)
    for tokens in prompts:
        again += bool(suggest(directory, keys, tokens, lambda _: False))
    about = f"{count:,} stale entries"
    return [
        Verdict(f"{about}: served", "==", 0, served, is_law=True),
        Verdict(f"{about}: reported missing", "==", count, missing, is_law=True),
        Verdict(f"{about}: suggested after they were withdrawn", "==", 0, again, is_law=True),
    ]


def _without_space(entries: Any, keys: SpaceKeys) -> set[bytes]:
    """The parts of a space's keys that are its anchors and ids."""
    prefixes = tuple(letter + keys.space for letter in (b"a", b"d"))
    return {key[1 + len(keys.space) :] for key in entries.scan_iter(count=10_000) if key.startswith(prefixes)}
