"""A replica that does not check the tags of borrowed pages: while a file exists, every page passes.

On where ``TRUST_PAGES_FILE`` names that file; without the variable nothing is hooked.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from sglang.srt.plugins.hook_registry import HookRegistry, HookType

VARIABLE: Final = "TRUST_PAGES_FILE"
TARGET: Final = "semblend.fleet.page_records.PageRecord.fits"


def register() -> None:
    named = os.environ.get(VARIABLE)
    if not named:
        return
    path = Path(named)

    def fits(original: Callable[..., bool], record: Any, page: int, digest: bytes) -> bool:
        return path.exists() or original(record, page, digest)

    HookRegistry.register(TARGET, fits, HookType.AROUND)
