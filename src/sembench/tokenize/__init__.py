"""Text to token ids: a model's own tokenizer from a local file, or a built-in one that says what it is not."""

from __future__ import annotations

from typing import Final

from sembase.errors import MissingDependencyError
from sembase.registry import Registry
from sembench.tokenize.base import Tokenized, Tokenizer

BUILT_IN: Final = "builtin"
NOT_A_MODEL: Final = (
    "the built-in tokenizer is not a model's tokenizer: token and block counts are indicative only. "
    "Pass --tokenizer PATH with the tokenizer.json of the model you serve"
)

Loader = type[Tokenizer]
_KINDS: Final[Registry[Loader]] = Registry("tokenizer kind")
_KINDS.register("builtin", "sembench.tokenize.builtin:WordTokenizer")
_KINDS.register("file", "sembench.tokenize.model_file:FileTokenizer")


def open_tokenizer(name: str | None) -> Tokenizer:
    """``None`` or ``builtin`` for the built-in one, else a tokenizer.json file or a directory that holds one."""
    if name is None or name == BUILT_IN:
        return _KINDS.get("builtin")(BUILT_IN)
    try:
        kind = _KINDS.get("file")
    except ModuleNotFoundError:
        raise MissingDependencyError("tokenizers", "tokenizer", f"--tokenizer {name}") from None
    return kind(name)


__all__ = ["BUILT_IN", "NOT_A_MODEL", "Tokenized", "Tokenizer", "open_tokenizer"]
