"""The names users import: every one is there, and importing the packages alone loads nothing heavy."""

from __future__ import annotations

import subprocess
import sys

import pytest

import semantic_kv
import sembase.trace


@pytest.mark.parametrize("package", [semantic_kv, sembase.trace])
def test_every_public_name_can_be_imported(package: object) -> None:
    names = package.__all__  # type: ignore[attr-defined]
    assert set(names) == set(package._MODULES)  # type: ignore[attr-defined]
    for name in names:
        found = getattr(package, name)
        assert getattr(found, "__name__", name) == name
    with pytest.raises(AttributeError, match="has no attribute 'absent'"):
        _ = package.absent  # type: ignore[attr-defined]


def test_importing_the_packages_imports_neither_numpy_nor_pyarrow() -> None:
    code = "import sys, semantic_kv, sembase.trace; print({'numpy', 'pyarrow', 'numba'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
