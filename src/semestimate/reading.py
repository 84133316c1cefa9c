"""How much of the trace files has been read, for the progress bar: the offsets of the files this process has open."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path


class ReadFraction:
    """From the kernel's own file offsets, so that no reader has to report them; unknown where there is no /proc."""

    def __init__(self, files: Sequence[Path]) -> None:
        self._sizes = {os.path.realpath(file): file.stat().st_size for file in files}
        self._read: dict[str, int] = {}

    def now(self) -> float | None:
        folder = Path("/proc/self/fd")
        try:
            links = list(folder.iterdir())
        except OSError:
            return None
        for link in links:
            try:
                target = os.readlink(link)
                if target in self._sizes:
                    info = Path(f"/proc/self/fdinfo/{link.name}").read_text(encoding="ascii")
                    self._read[target] = max(self._read.get(target, 0), int(info.split("pos:")[1].split()[0]))
            except (OSError, ValueError, IndexError):
                continue
        total = sum(self._sizes.values())
        return min(1.0, sum(self._read.values()) / total) if total and self._read else None
