"""When our package, and what goes in beside it, is put into an engine's environment again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from scripts import private_venv
from scripts.engines import engine_venv, sglang, vllm
from scripts.engines.engine_venv import EngineVenv, packages_of
from scripts.private_venv import VenvRecipe, folder_of


@pytest.fixture
def installs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """What pip was asked for; nothing is installed and no interpreter is started."""
    asked: list[list[str]] = []

    def note(_recipe: VenvRecipe, arguments: Sequence[str]) -> None:
        asked.append(list(arguments))

    monkeypatch.setattr(private_venv, "ENGINES", tmp_path / "engines")
    monkeypatch.setattr(engine_venv, "ensure_venv", folder_of)
    monkeypatch.setattr(engine_venv, "run_python", lambda _recipe, _code: "")
    monkeypatch.setattr(engine_venv, "install_into", note)
    return asked


def test_a_changed_project_beside_ours_goes_in_again(tmp_path: Path, installs: list[list[str]]) -> None:
    project = tmp_path / "plugins" / "pyproject.toml"
    project.parent.mkdir()
    project.write_text("[project]\n")
    venv = EngineVenv(VenvRecipe("here"), held=(), verify="", shown=(), test_tools=(), beside=(project.parent,))
    folder_of(venv.recipe).mkdir(parents=True)
    venv.build()
    first = len(installs)
    assert ["-e", str(project.parent)] == installs[-1][-2:]
    venv.build()
    assert len(installs) == first, "nothing changed, nothing is installed"
    project.write_text('[project.entry-points."sglang.srt.plugins"]\n')
    venv.build()
    assert len(installs) == 2 * first
    replace(venv, extras=("sglang",)).build()
    assert len(installs) == 3 * first


def test_the_servers_see_the_plug_ins_that_are_installed() -> None:
    assert sglang.VENV.beside == (sglang.PLUGINS,)
    assert (sglang.PLUGINS / "pyproject.toml").is_file()
    assert str(sglang.PLUGINS) in sglang.CODE_PATH


def test_extras_that_name_others_of_the_project_become_their_packages() -> None:
    table = {"base": ["a>=1", "b"], "more": ["kvmend[base]", "c"], "most": ["kvmend[more, base]", "kvmendish"]}
    assert packages_of(("most", "base"), "kvmend", table) == ["a>=1", "b", "c", "kvmendish"]


def test_no_engine_asks_a_registry_for_this_project(installs: list[list[str]]) -> None:
    for venv in (vllm.VENV, sglang.VENV):
        folder_of(venv.recipe).mkdir(parents=True)
        venv.build()
    asked = [word for words in installs for word in words if word.startswith("kvmend")]
    assert installs
    assert not asked
