"""Write requirements/dev.txt: the exact versions of everything in this environment, for use with ``pip install -c``."""

from __future__ import annotations

import re
import sys
from importlib.metadata import distributions
from pathlib import Path

TARGET = Path(__file__).parent.parent / "requirements" / "dev.txt"
HEADER = "# Written by `make pins`. Constraints, not requirements: listing a package here does not install it.\n"
LEFT_OUT = {"pip", "setuptools", "wheel", "kvmend"}


def main() -> int:
    pins = {}
    for found in distributions():
        name = re.sub(r"[-_.]+", "-", found.metadata["Name"]).lower()
        if name not in LEFT_OUT:
            pins[name] = found.version.partition("+")[0]  # a local build tag would bind others to this machine's build
    TARGET.parent.mkdir(exist_ok=True)
    lines = [f"{name}=={version}\n" for name, version in sorted(pins.items())]
    TARGET.write_text(HEADER + "".join(lines), encoding="utf-8")
    print(f"wrote {len(pins)} pins")
    return 0


if __name__ == "__main__":
    sys.exit(main())
