"""Certificates for one test, made by openssl: authorities, and what they sign for servers and clients."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl to make certificates")


@dataclass(frozen=True)
class Pair:
    cert: Path
    key: Path


def authority(folder: Path, name: str) -> Pair:
    made = Pair(folder / f"{name}.pem", folder / f"{name}.key")
    _openssl("req", "-x509", *_NEW_KEY, "-days", "1", "-subj", f"/CN={name}", *_out(made))
    return made


def signed(folder: Path, name: str, by: Pair, names: str = "DNS:engine") -> Pair:
    """A certificate for the subject alternative names ``names``."""
    made, request = Pair(folder / f"{name}.pem", folder / f"{name}.key"), folder / f"{name}.csr"
    extensions = folder / f"{name}.ext"
    extensions.write_text(f"subjectAltName={names}\n")
    _openssl("req", *_NEW_KEY, "-subj", f"/CN={name}", "-keyout", str(made.key), "-out", str(request))
    signing = ["x509", "-req", "-in", str(request), "-CA", str(by.cert), "-CAkey", str(by.key), "-CAcreateserial"]
    _openssl(*signing, "-days", "1", "-extfile", str(extensions), "-out", str(made.cert))
    return made


_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


def _out(made: Pair) -> tuple[str, ...]:
    return "-keyout", str(made.key), "-out", str(made.cert)


def _openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True, timeout=300)
