"""What Mooncake's error codes mean to a reader, with a store of our making in place of the package."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from semblend.fleet.carrier.base import CarrierError, KvCarrier, Piece, TooShortError

NAME = "0" * 32
INVALID, NOT_READY, NOT_FOUND = -600, -703, -704


class Store:
    """Answers every read with ``code``; ``size`` is that of the only object."""

    code = 0
    size = 0

    def register_buffer(self, *_: int) -> int:
        return 0

    def unregister_buffer(self, *_: int) -> int:
        return 0

    def get_into_ranges(self, addresses: list[int], *_: Any) -> list[list[list[int]]]:
        return [[[self.code]] for _ in addresses]

    def get_size(self, key: str) -> int:
        return self.size


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Store, KvCarrier]]:
    package, module = ModuleType("mooncake"), ModuleType("mooncake.store")
    module.MooncakeDistributedStore = Store  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "mooncake", package)
    monkeypatch.setitem(sys.modules, "mooncake.store", module)
    monkeypatch.delitem(sys.modules, "semblend.fleet.carrier.mooncake", raising=False)
    from semblend.fleet.carrier.mooncake import MooncakeCarrier

    carrier, fake = MooncakeCarrier("127.0.0.1:1", 0), Store()
    monkeypatch.setattr(carrier, "_connected", lambda: fake)
    yield fake, carrier
    sys.modules.pop("semblend.fleet.carrier.mooncake", None)


@pytest.mark.parametrize("code", [NOT_READY, NOT_FOUND])
def test_what_is_absent_or_still_being_written_is_missing(store: tuple[Store, KvCarrier], code: int) -> None:
    store[0].code = code
    assert store[1].read(NAME, [Piece(0, np.zeros(9, np.uint8))]) is False


def test_a_whole_object_that_is_too_short_is_no_fault_of_the_store(store: tuple[Store, KvCarrier]) -> None:
    store[0].code = INVALID
    for store[0].size, error in ((8, TooShortError), (9, CarrierError), (NOT_READY, CarrierError)):
        with pytest.raises(CarrierError) as raised:
            store[1].read(NAME, [Piece(0, np.zeros(9, np.uint8))])
        assert type(raised.value) is error
