"""Parts of an adapter's start-up that are the same for every engine: text decoder, announcer, what the log says."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from sembase.compiled import has_cached_code
from semblend.integration.announce import SILENT, Announcer, open_announcer
from semblend.integration.border import Border
from semblend.integration.texts import TextDecoder
from semblend.pipeline.planner import Planner

if TYPE_CHECKING:
    from semblend.integration.core.rotation_proof import Proof


def warm_up(log: logging.Logger) -> None:
    """Compile the planner's loops before a request needs them; from the cache if an earlier start left them there."""
    if not has_cached_code("semblend"):
        log.info("SemBlend is compiling look-ups, once, about a minute")
    Planner.warm_up()


def make_decoder(
    planner: Planner, border: Border, load: Callable[[], Callable[[list[int]], str]]
) -> TextDecoder | None:
    """None without an embedder: nothing else needs texts. The decoder calls ``load`` on its own thread."""
    return TextDecoder(load, border) if planner.has_semantic_path else None


def make_announcer(planner: Planner, border: Border, rank: int) -> Announcer:
    """``SILENT`` unless the settings name an endpoint. ``rank`` is the data-parallel rank."""
    if not planner.settings.donor_events:
        return SILENT
    return open_announcer(planner.settings, border, planner.gates, rank)


def log_proof(log: logging.Logger, proof: Proof, seconds: float) -> None:
    log.info(
        "SemBlend self-test: %d forward passes in %.2f s, largest error %.2f of its limit",
        proof.forwards,
        seconds,
        proof.largest_error,
    )


def small_donor_memory(host_bytes: int, bytes_per_token: int, context: int) -> str:
    """A warning if a request of the maximum length does not fit the donor memory; empty if it does."""
    held = host_bytes // bytes_per_token
    if held >= context:
        return ""
    return (
        f"Donor memory is small: host_bytes holds {held:,} tokens, fewer than one request of the maximum length "
        f"({context:,}), which takes {bytes_per_token * context:,} bytes."
    )


def log_disabled(log: logging.Logger, reason: str) -> None:
    log.warning("SemBlend is disabled; the engine prefills every request: %s", reason)
