"""Embedders by name. Built-ins and third parties (entry points in "semblend.embedders") use the same registry."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from sembase.errors import MissingDependencyError
from sembase.registry import Registry
from semblend.fingerprint.embed.base import Embedder

GROUP: Final = "semblend.embedders"


def no_embedder() -> None:
    """The name ``none``: the token path works alone."""


EMBEDDERS: Final[Registry[Callable[..., Embedder | None]]] = Registry("embedder", GROUP)
EMBEDDERS.register("none", "semblend.fingerprint.embed.catalogue:no_embedder")
EMBEDDERS.register("jaccard", "semblend.fingerprint.embed.jaccard:JaccardEmbedder")
EMBEDDERS.register("minilm", "semblend.fingerprint.embed.minilm:MiniLmEmbedder")
EMBEDDERS.register("onnx_gpu", "semblend.fingerprint.embed.onnx:OnnxEmbedder")

_EXTRAS: Final = {"minilm": "embedder", "onnx_gpu": "onnx-gpu"}


def build_embedder(name: str, **options: Any) -> Embedder | None:
    """The embedder called ``name``, or ``None`` for ``none``. ``options`` go to its constructor.

    Raises ``MissingDependencyError`` when its packages are not installed, and ``ConfigurationError`` when the name is
    unknown or its weights are not found. Loading a model takes seconds: call this at start-up.
    """
    try:
        factory = EMBEDDERS.get(name)
    except ImportError as error:
        package = (error.name or str(error)).partition(".")[0]
        raise MissingDependencyError(package, _EXTRAS.get(name, "embedder"), f"the embedder '{name}'") from error
    return factory(**options)
