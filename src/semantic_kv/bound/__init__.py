"""What no policy can beat: the infinite cache, the clairvoyant optimum, and a clairvoyant greedy cache below it."""

from __future__ import annotations

from semantic_kv.bound.clairvoyant import clairvoyant
from semantic_kv.bound.greedy import greedy_clairvoyant
from semantic_kv.bound.infinite import infinite
from semantic_kv.bound.result import Bound

__all__ = ["Bound", "clairvoyant", "greedy_clairvoyant", "infinite"]
