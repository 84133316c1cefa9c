"""Stage 2, the semantic half: texts become window vectors that suggest donors."""

from semblend.fingerprint.embed.base import Embedder
from semblend.fingerprint.embed.catalogue import EMBEDDERS, build_embedder
from semblend.fingerprint.embed.weights import WeightsNotFoundError

__all__ = ["EMBEDDERS", "Embedder", "WeightsNotFoundError", "build_embedder"]
