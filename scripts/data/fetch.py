"""Bytes of a source in, gzip file of the data folder out; and whether a file is the one that was measured with."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

from scripts.data.sources import DataFile

GZIP_MAGIC = b"\x1f\x8b"


class DataError(Exception):
    """A source answered with something else than the file; the message says what."""


def content_of(wanted: DataFile, body: bytes) -> bytes:
    """The uncompressed content; members of an archive are joined in name order."""
    try:
        if wanted.members:
            return b"".join(_members(wanted, body))
        return gzip.decompress(body) if body.startswith(GZIP_MAGIC) else body
    except (EOFError, zlib.error, tarfile.TarError, zipfile.BadZipFile) as damage:
        raise DataError(f"what was received is damaged: {damage}") from damage


def store(wanted: DataFile, content: bytes, folder: Path) -> Path:
    path = folder / wanted.file
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    partial.write_bytes(gzip.compress(content, mtime=0))
    partial.rename(path)
    return path


def is_as_measured(wanted: DataFile, folder: Path) -> bool:
    total = hashlib.sha256()
    with gzip.open(folder / wanted.file) as stream:
        while part := stream.read(1 << 20):
            total.update(part)
    return total.hexdigest() == wanted.sha256


def _members(wanted: DataFile, body: bytes) -> Iterator[bytes]:
    members = {name: data for name, data in _unpack(body) if fnmatch(name, wanted.members)}
    if not members:
        raise DataError(f"the archive has no {wanted.members}")
    one_object_each = wanted.members.endswith(".json")
    for _, data in sorted(members.items()):
        if one_object_each:
            yield json.dumps(json.loads(data), separators=(",", ":"), ensure_ascii=False).encode() + b"\n"
        else:
            yield data if data.endswith(b"\n") else data + b"\n"


def _unpack(body: bytes) -> Iterator[tuple[str, bytes]]:
    if zipfile.is_zipfile(io.BytesIO(body)):
        with zipfile.ZipFile(io.BytesIO(body)) as packed:
            yield from ((name, packed.read(name)) for name in packed.namelist() if not name.endswith("/"))
        return
    with tarfile.open(fileobj=io.BytesIO(body)) as tar:
        for member in tar:
            if (file := tar.extractfile(member)) is not None:
                yield member.name, file.read()
