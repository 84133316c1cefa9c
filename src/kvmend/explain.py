"""``kvmend explain REQUEST_ID``: by the router's decisions, or, with ``--events``, by the connector's events."""

from __future__ import annotations

from collections.abc import Sequence

from sembase.registry import load_target
from sembase.streams import write_out


def main(words: Sequence[str], program: str = "kvmend") -> int:
    by_events = any(word.partition("=")[0] == "--events" for word in words)
    if not by_events and {"-h", "--help"} & set(words):
        write_out(f"{program} explain ID --events FILE: what the connector reused, and why. Without --events:\n\n")
    target = "semblend.cli.main:main" if by_events else "semgate.cli.main:main"
    return int(load_target(target)(["explain", *words], program=program))
