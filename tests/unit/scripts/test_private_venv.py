"""Recipes of private environments: stamps that stay, requirements that leave out what must not come."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from scripts import private_venv
from scripts.private_venv import VenvRecipe, ensure_venv, is_built, python_of, requirements_of


@pytest.fixture
def present(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> VenvRecipe:
    """A recipe whose interpreter is the one that runs the tests."""
    monkeypatch.setattr(private_venv, "ENGINES", tmp_path)
    recipe = VenvRecipe("here", completed=("pytest",), left_out=("pluggy",))
    python_of(recipe).parent.mkdir(parents=True)
    python_of(recipe).write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python_of(recipe).chmod(0o755)
    return recipe


def test_a_recipe_without_new_fields_keeps_its_old_stamp() -> None:
    old = "01b07270fe4fb348619a41f1b243e1f6bf8946089dd48d80ad6e879da8e90eb7"
    assert VenvRecipe("any", packages=("numpy",), bare=("lmcache==0.5.6",)).stamp == old


@pytest.mark.parametrize(
    "changed",
    [
        VenvRecipe("vllm", bare=("a==1",), completed=("a",)),
        VenvRecipe("vllm", bare=("a==1",), completed=("a",), left_out=("torch",)),
        VenvRecipe("vllm", bare=("a==2",)),
    ],
)
def test_whatever_changes_the_contents_changes_the_stamp(changed: VenvRecipe) -> None:
    assert changed.stamp != VenvRecipe("vllm", bare=("a==1",)).stamp


def test_a_stamped_environment_is_not_built_again(present: VenvRecipe) -> None:
    assert not is_built(present)
    (private_venv.ENGINES / "here" / "recipe.sha256").write_text(present.stamp + "\n")
    assert is_built(present)
    assert ensure_venv(present) == python_of(present)


def test_requirements_come_from_the_package_without_extras_and_without_what_is_left_out(present: VenvRecipe) -> None:
    asked = requirements_of(present, "pytest")
    assert any(line.startswith("packaging") for line in asked)
    assert not any(line.startswith("pluggy") for line in asked)
    assert not any("extra ==" in line for line in asked)


def test_the_environment_of_private_interpreters_is_clean(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setenv("KEPT", "1")
    cleaned = private_venv.clean_environment({"ADDED": "2"})
    assert "PYTHONDONTWRITEBYTECODE" not in cleaned
    assert (cleaned["KEPT"], cleaned["ADDED"]) == ("1", "2")
