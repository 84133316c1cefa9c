"""Install the built wheel into a clean environment and use it as a new user would: three packages, no model."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGES = ["kvmend", "semantic_kv", "sembase", "sembench", "semblend", "semestimate", "semgate"]
TOP_LEVEL = """
from importlib.metadata import files
print(*sorted({part.parts[0] for part in files("kvmend") if part.suffix == ".py"}))
"""


def main() -> int:
    wheels = sorted((ROOT / "dist").glob("kvmend-*.whl"))
    if not wheels:
        print("no wheel in dist/: run `make build` first", file=sys.stderr)
        return 3
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        venv.create(home / "venv", with_pip=True)
        python = home / "venv" / "bin" / "python"
        run(home, python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(wheels[-1]))
        listed = run(home, python, "-m", "pip", "list", "--format=freeze", "--disable-pip-version-check")
        packages = sorted(line.partition("==")[0].lower() for line in listed.splitlines())
        installed = [name for name in packages if name not in {"pip", "setuptools", "wheel"}]
        if installed != ["kvmend", "msgspec", "numpy", "rapidfuzz"]:
            print(f"the base install brought {installed}", file=sys.stderr)
            return 1
        run(home, python, "-c", "from semblend import Planner, Namespace, ReusePlan, Decline")
        top_level = run(home, python, "-c", TOP_LEVEL).split()
        if top_level != PACKAGES:
            print(f"the wheel puts {top_level} into site-packages", file=sys.stderr)
            return 1
        command, bench = home / "venv" / "bin" / "kvmend", home / "venv" / "bin" / "sembench"
        for area in ("", "estimate", "doctor", "serve", "bench", "simulate", "proxy", "route", "pick", "explain"):
            run(home, command, *filter(None, [area]), "--help")
        run(home, bench, "build", "--profile", "fixture", "--output", "fixture.jsonl")
        run(home, bench, "run-offline", "--manifest", "fixture.jsonl", "--output", "result.json", "--block-size", "16")
        run(home, command, "bench", "assert-result-gates", "--result", "result.json")
    print("smoke: the wheel works with three packages installed: " + ", ".join(installed))
    return 0


def run(home: Path, *command: str | Path) -> str:
    result = subprocess.run([str(part) for part in command], cwd=home, capture_output=True, text=True, check=False)
    if result.returncode:
        sys.stderr.write(result.stdout + result.stderr)
        raise SystemExit(f"failed ({result.returncode}): {' '.join(str(part) for part in command)}")
    return result.stdout


if __name__ == "__main__":
    sys.exit(main())
