"""Who may import what inside and around semgate, how long its modules are, and where its environment is read."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src"
ALLOWED = (
    *("sembase.registry", "sembase.compiled", "sembase.errors", "semblend.contract", "sembase.streams"),
    *("semblend.guard", "semblend.outcome"),  # the guard runs beside the engine, which is where the proxy is
    *("sembase.command_line", "sembase.files", "semblend.donors", "semblend._version"),
    *("sembase.labels", "sembase.segment", "sembase.trace.record", "sembase.trace.files"),
    *("sembase.tokenizer", "semantic_kv.latency", "semantic_kv.calibrate"),
)


def imports(package: str) -> Iterator[tuple[str, str]]:
    """(file, imported module) for every import, anywhere in the file."""
    for path in sorted((SRC / package).rglob("*.py")):
        name = path.relative_to(SRC).as_posix()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                yield from ((name, alias.name) for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                yield name, node.module


def strangers() -> set[tuple[str, str]]:
    ours = ("semblend", "semantic_kv", "sembench", "sembase.onepage")
    found = {
        (file, module)
        for file, module in imports("semgate")
        if module.partition(".")[0] in ours and not module.startswith(ALLOWED)
    }
    return found - {("semgate/cli/main.py", "semblend")}  # the package provides the version


def test_semgate_takes_of_us_only_what_was_agreed() -> None:
    assert strangers() == set()


def test_no_other_package_imports_semgate() -> None:
    found = [
        (file, module)
        for package in ("semblend", "semantic_kv", "sembench", "sembase.onepage")
        for file, module in imports(package)
        if module.partition(".")[0] == "semgate"
    ]
    assert found == []


def test_the_lower_rooms_do_not_know_the_router() -> None:
    lower = ("http", "events", "index", "tokens", "donors", "placement", "fleet", "prompt", "proxy")
    found = [
        (file, module)
        for file, module in imports("semgate")
        if file.split("/")[1] in lower and module.startswith(("semgate.router", "semgate.cli"))
    ]
    assert found == []


def test_the_environment_is_read_in_one_module() -> None:
    readers = {
        path.relative_to(SRC).as_posix()
        for path in (SRC / "semgate").rglob("*.py")
        if "os.environ" in path.read_text(encoding="utf-8") or "os.getenv" in path.read_text(encoding="utf-8")
    }
    assert readers == {"semgate/settings.py"}


def test_modules_of_semgate_stay_small() -> None:
    long = {
        path.name: lines
        for path in (SRC / "semgate").rglob("*.py")
        if (lines := len(path.read_text(encoding="utf-8").splitlines())) > 400
    }
    assert long == {}


@pytest.mark.parametrize(
    ("module", "variables"),
    [
        ("apps.router.main", {"SEMANTICKV_REPLICAS": "http://127.0.0.1:1", "SEMANTICKV_ROUTING_POLICY": "round_robin"}),
        ("apps.proxy.main", {"SEMANTICKV_UPSTREAM_BASE_URL": "http://127.0.0.1:1"}),
    ],
)
def test_the_apps_of_the_seeds_are_asgi_callables(
    module: str, variables: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = {"PATH": "", "PYTHONPATH": f"{ROOT}:{SRC}", "HOME": str(tmp_path), **variables}
    code = f"import inspect; from {module} import app; assert inspect.iscoroutinefunction(type(app).__call__)"
    made = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=env, capture_output=True, text=True, check=False, timeout=300
    )
    assert made.returncode == 0, made.stderr
    bare = subprocess.run(
        [sys.executable, "-c", f"import {module}"],
        cwd=tmp_path,
        env={**env, "SEMGATE_NONSENSE": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert bare.returncode == 1
    assert bare.stderr.startswith("semgate: SEMGATE_NONSENSE is not a setting of semgate")


def test_the_demonstration_runs(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "demo_semantic_router.py")],
        cwd=tmp_path,
        env={"PATH": "", "PYTHONPATH": str(SRC), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert run.returncode == 0, run.stderr[-2000:]
    stayed = [line for line in run.stdout.splitlines() if line.startswith("turns routed to")]
    assert len(stayed) == 2
    assert stayed[1].endswith("9 of 9"), "semantic_locality keeps conversations together"


def test_every_module_can_be_imported_alone() -> None:
    for module in ("semgate", "semgate.settings", "semgate.cli.main", "semgate.router.service"):
        importlib.import_module(module)
