"""A load that goes wrong and says nothing: while a file exists, keys are moved by as many positions too far as it says.

On where ``WRONG_KEYS_FILE`` names that file; without the variable nothing is hooked.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from sglang.srt.plugins.hook_registry import HookRegistry, HookType

VARIABLE: Final = "WRONG_KEYS_FILE"
TARGET: Final = "semblend.integration.sglang.donor_kv.DonorCopier.copy"


def register() -> None:
    named = os.environ.get(VARIABLE)
    if not named:
        return
    path = Path(named)

    def copy(original: Callable[..., Any], copier: Any, donor: Any, start: int, own_slots: Any, shift: int) -> Any:
        too_far = int(path.read_text()) if path.exists() else 0
        return original(copier, donor, start, own_slots, shift + too_far)

    HookRegistry.register(TARGET, copy, HookType.AROUND)
