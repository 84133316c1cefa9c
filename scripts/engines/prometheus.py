"""Prometheus and promtool (a Debian package, unpacked) in ``.cache/prometheus``, for the tests of dashboard and alerts.

Run ``python -m scripts.engines.prometheus``. Nothing is installed into the system. Safe to repeat.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from scripts.engines.fronts import unpack_debian

FOLDER: Final = Path(__file__).parents[2] / ".cache" / "prometheus"


def binary_of(name: str, folder: Path = FOLDER) -> Path | None:
    """``prometheus`` or ``promtool``: ours, or one that is installed on the machine; None if there is none."""
    ours, found = folder / "usr" / "bin" / name, shutil.which(name)
    return ours if ours.is_file() else Path(found) if found else None


def main() -> int:
    argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0]).parse_args()
    if binary_of("prometheus") is None:
        try:
            unpack_debian(("prometheus",), FOLDER)
        except (OSError, subprocess.SubprocessError) as error:
            print(f"[prometheus] cannot be fetched, its tests are skipped: {error}", file=sys.stderr)
            shutil.rmtree(FOLDER, ignore_errors=True)
            return 0
    print(f"[prometheus] {binary_of('prometheus')}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
