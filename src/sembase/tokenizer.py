"""Text to token ids: a model's tokenizer.json (extra ``tokenizer``), or a built-in rule that is no model's."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from sembase.errors import ConfigurationError, MissingDependencyError

BUILT_IN: Final = "builtin"

# Words with their leading space, digits by threes, single signs, white space as it is. Ideographs and kana stand alone.
_PIECE: Final = re.compile(
    r" ?[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]"
    r"| ?[^\W\d_\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]+"
    r"| ?\d{1,3}"
    r"| ?[^\w\s]"
    r"|_+"
    r"|\s+(?!\S)|\s"
)


class TextTokenizer(Protocol):
    name: str

    def encode(self, text: str) -> NDArray[np.int32]: ...

    def count(self, text: str) -> int: ...


class WordTokenizer:
    """Pieces get the next free id when first met: equal ids are equal pieces, never a hash that collides.

    Costs about 150 bytes for every distinct piece for as long as the tokenizer lives.
    """

    def __init__(self) -> None:
        self.name = BUILT_IN
        self._ids: dict[str, int] = {}

    def encode(self, text: str) -> NDArray[np.int32]:
        ids = self._ids
        return np.array([ids.setdefault(piece, len(ids)) for piece in _PIECE.findall(text)], dtype=np.int32)

    def count(self, text: str) -> int:
        return len(_PIECE.findall(text))


class FileTokenizer:
    """A model's own tokenizer from its tokenizer.json."""

    def __init__(self, path: Path) -> None:
        try:
            import tokenizers  # noqa: PLC0415  (optional: only who asks for a model's tokenizer needs it)
        except ModuleNotFoundError:
            raise MissingDependencyError("tokenizers", "tokenizer", f"the tokenizer {path.name}") from None
        file = path / "tokenizer.json" if path.is_dir() else path
        if not file.is_file():
            raise ConfigurationError(f"--tokenizer {path}: no such tokenizer.json file, nor a directory that holds one")
        try:
            # The library raises its own bare Exception type for a file it cannot parse.
            self._tokenizer: Any = tokenizers.Tokenizer.from_buffer(file.read_bytes())
        except Exception as error:  # noqa: BLE001 - tokenizers raises plain Exception
            raise ConfigurationError(f"tokenizer {file}: not a tokenizer.json: {error}") from None
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self.name = f"{file.parent.name}/{file.name}"

    def encode(self, text: str) -> NDArray[np.int32]:
        return np.asarray(self._tokenizer.encode(text, add_special_tokens=False).ids, dtype=np.int32)

    def count(self, text: str) -> int:
        return len(self._tokenizer.encode(text, add_special_tokens=False).ids)


def open_tokenizer(name: str | None) -> TextTokenizer:
    """``None`` or ``builtin`` for the built-in rule, else a tokenizer.json file or the directory that holds one."""
    return WordTokenizer() if name is None or name == BUILT_IN else FileTokenizer(Path(name))
