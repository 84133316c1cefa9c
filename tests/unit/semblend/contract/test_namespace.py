from __future__ import annotations

import dataclasses
import itertools

import pytest

from semblend.contract import UNKNOWN, Namespace

KNOWN = Namespace(tenant="t", model="m")
NAMES = [f.name for f in dataclasses.fields(Namespace)]


@pytest.mark.parametrize("name", NAMES)
def test_every_component_separates(name: str) -> None:
    variants = [dataclasses.replace(KNOWN, **{name: value}) for value in (None, "None", "", 0, "0", 1, "x", UNKNOWN)]
    for a, b in itertools.combinations(variants, 2):
        assert a != b
        assert a.digest() != b.digest()


@pytest.mark.parametrize("name", NAMES)
def test_an_unknown_component_is_named(name: str) -> None:
    namespace = dataclasses.replace(KNOWN, **{name: UNKNOWN})
    assert not namespace.is_known
    assert namespace.unknown_components() == (name,)
    assert KNOWN.is_known


def test_a_tenant_must_be_given() -> None:
    with pytest.raises(TypeError):
        Namespace(model="m")  # type: ignore[call-arg]
