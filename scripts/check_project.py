"""``python scripts/check_project.py``: do packages, experiments, policies and service load? Seconds, no benchmark."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Final

from semantic_kv.api import create_app
from semantic_kv.experiment.config_file import load_config
from semantic_kv.policy.registry import ADMISSION, EVICTION, admission, eviction
from sembase.errors import SemBlendError

CONFIGS: Final = Path(__file__).parent.parent / "configs" / "experiments"
PACKAGES: Final = ("kvmend", "semblend", "sembench", "semantic_kv", "semestimate", "semgate")


def packages() -> str:
    for package in PACKAGES:
        import_module(package)
    return ", ".join(PACKAGES)


def experiments() -> str:
    names = [load_config(path).experiment for path in sorted(CONFIGS.glob("*.yaml"))]
    if not names:
        raise FileNotFoundError(f"no experiment in {CONFIGS.name}")
    return ", ".join(names)


def policies() -> str:
    evicting = [eviction(name).name for name in EVICTION.names()]
    admitting = [admission(name).name for name in ADMISSION.names()]
    return f"{len(evicting)} evictions, {len(admitting)} admissions"


def service() -> str:
    return f"{len(create_app().openapi()['paths'])} routes"


CHECKS: Final[tuple[Callable[[], str], ...]] = (packages, experiments, policies, service)


def main() -> int:
    failed = 0
    for check in CHECKS:
        try:
            print(f"ok  {check.__name__}: {check()}")
        except (ImportError, OSError, SemBlendError) as error:
            failed += 1
            print(f"BAD {check.__name__}: {error}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
