"""Fetch the traces and texts that figures of the documentation were measured with, into ``data/``.

Files that are there are kept. ``--check`` compares content with the checksums of this page's sources; a fetched file
that differs is kept and reported: its source has changed since we measured.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Final

from scripts.data.download import download
from scripts.data.fetch import DataError, content_of, is_as_measured, store
from scripts.data.folder import BANNER, MADE_UP, PLACES, REAL_DATA
from scripts.data.made_up import write_made_up
from scripts.data.sources import FILES, DataFile

Download = Callable[[str, Path], bytes]
PARTS: Final = ".parts"  # unfinished downloads, within the data folder
NOT_ALL: Final = """\
{missing} of {all} files not fetched. Run the command again to continue with those.
With no data at all, the benchmarks' `make` targets read made-up files and say so in a banner; their figures then are
not those of the documentation.\
"""


def main(argv: Sequence[str] | None = None, files: Sequence[DataFile] = FILES) -> int:
    parser = argparse.ArgumentParser(prog="python -m scripts.data", description=__doc__)
    parser.add_argument("--folder", type=Path, help="default: the folder that has data, else data/ in this clone")
    parser.add_argument("--check", action="store_true", help="fetch nothing; compare what is there with the checksums")
    parser.add_argument(
        "--list", action="store_true", help="file, licence, address, and how it was derived; fetch nothing"
    )
    parser.add_argument(
        "--or-made-up", action="store_true", help="fetch nothing; write made-up files where the real ones are absent"
    )
    arguments = parser.parse_args(argv)
    folder: Path = arguments.folder or REAL_DATA
    if arguments.list:
        for each in files:
            print(f"{each.file}\n  {each.licence}; {each.derived or 'unchanged'}\n  {each.address}")
        return 0
    if arguments.or_made_up:
        return _fall_back()
    return check(files, folder) if arguments.check else fetch(files, folder)


def check(files: Sequence[DataFile], folder: Path) -> int:
    wrong = 0
    for each in files:
        if not (folder / each.file).is_file():
            verdict = "absent"
        else:
            verdict = "as measured" if is_as_measured(each, folder) else "DIFFERENT CONTENT"
        wrong += verdict != "as measured"
        print(f"{verdict:18} {each.file}")
    print(f"{len(files) - wrong} of {len(files)} files as measured")
    return 1 if wrong else 0


def fetch(files: Sequence[DataFile], folder: Path, load: Download = download) -> int:
    once = cache(_outcome)  # several files come out of one archive
    missing = 0
    for each in files:
        if (folder / each.file).is_file():
            print(f"there already       {each.file}")
            continue
        try:
            body = once(load, each.address, folder / PARTS)
            if isinstance(body, OSError):
                raise body
            store(each, content_of(each, body), folder)
        except (OSError, ValueError, DataError) as failure:
            missing += 1
            print(f"NOT FETCHED         {each.file}: {failure}\n                    {each.address}")
            continue
        same = is_as_measured(each, folder)
        print(f"{'as measured' if same else 'DIFFERENT CONTENT':19} {each.file} ({each.licence})")
    if missing:
        print(NOT_ALL.format(missing=missing, all=len(files)), file=sys.stderr)
    return 1 if missing else 0


def _outcome(load: Download, address: str, parts: Path) -> bytes | OSError:
    """A failure is a value, so that it is remembered too: an address that does not answer is tried once."""
    try:
        return load(address, parts)
    except OSError as failure:
        return failure


def _fall_back() -> int:
    if any((place / "text").is_dir() for place in PLACES):
        return 0
    if not (MADE_UP / "text").is_dir():
        write_made_up(MADE_UP)
    print(BANNER, file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
