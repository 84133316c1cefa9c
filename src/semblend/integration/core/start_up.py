"""Parts of an adapter's start-up that no engine changes: the text decoder, the announcer, the log line of a refusal."""

from __future__ import annotations

import logging
from collections.abc import Callable

from semblend.integration.announce import SILENT, Announcer, open_announcer
from semblend.integration.border import Border
from semblend.integration.texts import TextDecoder
from semblend.pipeline.planner import Planner


def make_decoder(
    planner: Planner, border: Border, load: Callable[[], Callable[[list[int]], str]]
) -> TextDecoder | None:
    """Texts are decoded only where an embedder needs them. ``load`` gives the engine's tokenizer, on another thread."""
    return TextDecoder(load, border) if planner.has_semantic_path else None


def make_announcer(planner: Planner, border: Border, rank: int) -> Announcer:
    """Donors are announced only where the deployment names an endpoint. ``rank`` is the data-parallel rank."""
    if not planner.settings.donor_events:
        return SILENT
    return open_announcer(planner.settings, border, planner.gates, rank)


def log_disabled(log: logging.Logger, reason: str) -> None:
    log.warning("SemBlend is disabled; the engine prefills every request: %s", reason)
