"""Outlives the launcher by a moment: ends an engine's process group when the launcher vanishes without stopping it.

Started by ``server.py`` with the group's id and its temporary folder; the launcher holds the other end of
standard input. A line there means that the engine was stopped in good order, end of file that the launcher was killed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys


def main() -> int:
    group, scratch = int(sys.argv[1]), sys.argv[2]
    if not sys.stdin.buffer.readline():
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)
        shutil.rmtree(scratch, ignore_errors=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
