"""The commands from before ``kvmend``: they do what they did, and tell a person at a terminal the present name."""

from __future__ import annotations

import sys
from pathlib import PurePath
from typing import Final

from kvmend.front import BENCH, GATEWAY, LIBRARY, SIMULATOR
from kvmend.serve import ENGINES
from sembase.registry import load_target
from sembase.streams import write_err

# Name to its main and to what a person types today.
FORMER: Final = {
    "semblend": (LIBRARY, "kvmend"),
    "semblend-vllm": (ENGINES["vllm"][1], "kvmend serve --engine vllm"),
    "semblend-sglang": (ENGINES["sglang"][1], "kvmend serve --engine sglang"),
    "semblend-trtllm": (ENGINES["trtllm"][1], "kvmend serve --engine trtllm"),
    "sembench": (BENCH, "kvmend bench"),
    "semantic-kv": (SIMULATOR, "kvmend simulate"),
    "semgate": (GATEWAY, "kvmend proxy, kvmend route, kvmend pick or kvmend explain"),
}


def main() -> int:
    """The script's own name says which command it is."""
    name = PurePath(sys.argv[0]).name.removesuffix(".exe")
    target, present = FORMER[name]
    if is_read_by_a_person():
        write_err(f"{name} is now `{present}`; both names work\n")
    return int(load_target(target)())


def is_read_by_a_person() -> bool:
    """Both streams are a terminal and no machine-readable output was requested."""
    return sys.stdout.isatty() and sys.stderr.isatty() and not any(word.startswith("--json") for word in sys.argv)
