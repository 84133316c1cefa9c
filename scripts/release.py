"""What a release needs besides the build: tag and version compared, the changelog's section, a bill of materials.

``python -m scripts.release check v1.2.0``, ``... notes v1.2.0 FILE``, ``... sbom FILE`` (of the wheel in ``dist``).
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

from scripts.install import install

ROOT = Path(__file__).resolve().parent.parent
SBOM_TOOL = "cyclonedx-bom==7.5.0"
_VERSION = re.compile(r'^__version__ = "([^"]+)"$', re.MULTILINE)


class NotReadyError(Exception):
    """The release must not be made; the message says what to change."""


def version(root: Path = ROOT) -> str:
    found = _VERSION.search((root / "src" / "semblend" / "_version.py").read_text(encoding="utf-8"))
    if found is None:
        raise NotReadyError("src/semblend/_version.py names no version")
    return found.group(1)


def section(changelog: str, name: str) -> str:
    """The text under ``## [name]``; empty if it is missing or has no entry."""
    found = re.search(rf"^## \[{re.escape(name)}\][^\n]*\n(.*?)(?=^## \[|\Z)", changelog, re.MULTILINE | re.DOTALL)
    text = found.group(1).strip() if found else ""
    return text if re.search(r"^- ", text, re.MULTILINE) else ""


def check(tag: str, root: Path = ROOT) -> str:
    """The notes of the release, if tag, version and changelog agree."""
    released = version(root)
    if tag != f"v{released}":
        raise NotReadyError(f"the tag is {tag}, but src/semblend/_version.py says {released}: tag v{released}")
    changelog = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    notes = section(changelog, released)
    if not notes:
        raise NotReadyError(f"CHANGELOG.md has no entries under [{released}]: move those of [Unreleased] there")
    if section(changelog, "Unreleased"):
        raise NotReadyError(f"CHANGELOG.md still has entries under [Unreleased]: move them to [{released}]")
    return notes


def write_sbom(target: Path) -> None:
    """CycloneDX JSON of a clean environment with the wheel in it: what `pip install` brings."""
    wheels = sorted((ROOT / "dist").glob("kvmend-*.whl"))
    if len(wheels) != 1:
        raise NotReadyError(f"expected one wheel in dist/, found {len(wheels)}: run `make build`")
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        described, tool = Path(folder) / "described", Path(folder) / "tool"
        for place, package in ((described, str(wheels[0])), (tool, SBOM_TOOL)):
            venv.create(place)
            install(["--python", str(place / "bin" / "python"), package])
        words = ["environment", str(described / "bin" / "python"), "--output-reproducible", "--of", "JSON"]
        subprocess.run([str(tool / "bin" / "cyclonedx-py"), *words, "-o", str(target)], check=True)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("check").add_argument("tag")
    notes = commands.add_parser("notes")
    notes.add_argument("tag")
    notes.add_argument("file", type=Path)
    commands.add_parser("sbom").add_argument("file", type=Path)
    options = parser.parse_args(arguments)
    try:
        if options.command == "sbom":
            write_sbom(options.file)
            return 0
        text = check(options.tag)
    except NotReadyError as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    if options.command == "notes":
        options.file.parent.mkdir(parents=True, exist_ok=True)
        options.file.write_text(text + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
