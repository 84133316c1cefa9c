"""The tests of what changed since a commit: ``python -m scripts.changed_tests BASE`` prints their paths, one per line.

``tests/unit`` mirrors ``src``: a changed module is covered by the nearest folder of that name, a test by itself.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parent.parent
ALWAYS = "tests/contract/test_public_names.py"


def covering_tests(changed: Iterable[str], root: Path = ROOT) -> list[str]:
    """Paths below others are dropped: pytest would collect them twice."""
    found = {ALWAYS}
    for name in changed:
        path = PurePosixPath(name)
        if path.parts[:1] == ("tests",) and path.name.startswith("test_") and (root / path).is_file():
            if path.parts[1] in {"unit", "contract"}:
                found.add(str(path))
        elif path.parts[:1] in {("src",), ("scripts",)}:
            found.add(_nearest(path, root))
        elif path.name == "pyproject.toml" or path.parts[:1] in {("docs",), ("deploy",), (".github",)}:
            found.add("tests/contract/test_architecture_page.py")
    return sorted(each for each in found if not any(str(above) in found for above in PurePosixPath(each).parents))


def _nearest(path: PurePosixPath, root: Path) -> str:
    """``src/a/b/c.py`` -> ``tests/unit/a/b``, or the next folder above it that exists."""
    parts = path.parts[1:-1] if path.parts[0] == "src" else path.parts[:-1]
    folder = PurePosixPath("tests/unit", *parts)
    while not (root / folder).is_dir():
        folder = folder.parent
    return str(folder)


def changed_since(base: str) -> list[str]:
    """Names relative to the root; also what is not committed yet."""
    command = ["git", "diff", "--name-only", "--diff-filter=d", base]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines()


def main() -> int:
    base = sys.argv[1] if len(sys.argv) > 1 and sys.argv[1].strip("0") else "HEAD~1"
    print("\n".join(covering_tests(changed_since(base))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
