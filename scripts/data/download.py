"""Address in, bytes out. What an interrupted download left is continued, in the same run and in the next one."""

from __future__ import annotations

import hashlib
import http.client
import urllib.error
import urllib.request
from http import HTTPStatus
from pathlib import Path
from typing import Final

TIMEOUT_SECONDS: Final = 60
CHUNK: Final = 1 << 20


def download(address: str, parts: Path) -> bytes:
    """Unfinished files are kept in ``parts``. An attempt that brings nothing new is the last and raises ``OSError``."""
    part = parts / hashlib.sha256(address.encode()).hexdigest()[:16]
    while True:
        version, size = _version_of(part), _size(part)
        try:
            _continue(address, part)
        except urllib.error.HTTPError as refused:
            refused.close()
            if refused.code != HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE or not size:
                raise
            part.unlink()  # longer than the file is now
        except (OSError, http.client.HTTPException) as failure:
            received = _size(part) if _version_of(part) else 0  # without a version it cannot be continued
            if not received or (received <= size and _version_of(part) == version):
                raise OSError(f"{failure}; {received:,} bytes are kept" if received else str(failure)) from failure
        else:
            body = part.read_bytes()
            part.unlink()
            _mark(part).unlink(missing_ok=True)
            return body


def _continue(address: str, part: Path) -> None:
    """Appends what is missing if the server still has the same version of the file; else begins again."""
    request, start = urllib.request.Request(address), _size(part)
    if start and (version := _version_of(part)):
        request.add_header("Range", f"bytes={start}-")
        request.add_header("If-Range", version)
    with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as answer:
        is_rest = answer.status == HTTPStatus.PARTIAL_CONTENT
        if is_rest and not answer.headers["Content-Range"].startswith(f"bytes {start}-"):
            raise OSError(f"requested the bytes from {start:,}, received {answer.headers['Content-Range']}")
        part.parent.mkdir(parents=True, exist_ok=True)
        if not is_rest:
            part.write_bytes(b"")  # before the new tag: the old bytes must never be found under it
            tag = answer.headers["ETag"] or ""
            _mark(part).write_text("" if tag.startswith("W/") else tag, encoding="utf-8")  # weak tags do not name bytes
        expected, received = answer.length, 0
        with part.open("ab") as file:
            while chunk := answer.read(CHUNK):
                received += len(chunk)
                file.write(chunk)
    if expected is not None and received < expected:
        raise OSError(f"the connection ended {expected - received:,} bytes early")


def _version_of(part: Path) -> str:
    """The server's name for the version of the file that ``part`` is the beginning of; empty if it gave none."""
    return _mark(part).read_text(encoding="utf-8") if _mark(part).is_file() else ""


def _mark(part: Path) -> Path:
    return part.with_suffix(".etag")


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0
