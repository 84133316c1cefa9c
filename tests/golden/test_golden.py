"""The five flows give what they gave. A wanted change is accepted by ``python -m tests.golden --write``."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.golden.compare import KEPT, difference
from tests.golden.flows import ENGINE_FLOWS, FLOWS


@pytest.mark.parametrize("name", [*FLOWS, *(pytest.param(name, marks=pytest.mark.engine) for name in ENGINE_FLOWS)])
def test_the_flow_gives_what_it_gave(name: str, tmp_path: Path) -> None:
    found = (FLOWS | ENGINE_FLOWS)[name](tmp_path)
    if isinstance(found, str):
        pytest.skip(found)
    shown = [text for file in found if (text := difference(file, found[file]))]
    if shown:
        accept = f"If this change is wanted: python -m tests.golden --write {name}"
        pytest.fail("\n\n".join([*shown, accept]), pytrace=False)


def test_each_kept_file_belongs_to_a_flow() -> None:
    """A removed flow takes its files along."""
    folders = {path.parent.name for path in KEPT.rglob("*") if path.is_file()}
    assert folders == {"serve", "route", "bench", "estimate", "simulate"}
