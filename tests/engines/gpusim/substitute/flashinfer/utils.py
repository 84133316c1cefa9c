"""Imported by the engine, not used on the simulated GPU."""

from __future__ import annotations


class FP4Tensor:
    """Quantised caches are not simulated."""
