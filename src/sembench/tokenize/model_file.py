"""A model's tokenizer from its tokenizer.json. The only importer of the ``tokenizers`` library; loaded on demand."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, Final

import numpy as np
import tokenizers

from sembase.errors import ConfigurationError
from sembench.tokenize.base import Tokenized

_FILE_NAME: Final = "tokenizer.json"


class FileTokenizer:
    is_model_tokenizer: Final = True

    def __init__(self, name: str) -> None:
        path = Path(name)
        file = path / _FILE_NAME if path.is_dir() else path
        if not file.is_file():
            raise ConfigurationError(
                f"--tokenizer {name}: no such tokenizer.json file, nor a directory that holds one. "
                "Names on a hub are not fetched: download the model's tokenizer.json and pass its path"
            )
        content = file.read_bytes()
        try:
            # The library raises its own bare Exception type for a file it cannot parse.
            self._tokenizer: Any = tokenizers.Tokenizer.from_buffer(content)
        except Exception as error:  # noqa: BLE001 - tokenizers raises plain Exception
            raise ConfigurationError(f"--tokenizer {file}: not a tokenizer.json: {error}") from None
        # Truncation or padding saved with the file would silently change every count.
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self.name = f"{file.parent.name}/{file.name}" if file.name == _FILE_NAME else file.name
        self.digest = hashlib.sha256(content).hexdigest()

    def encode(self, text: str) -> Tokenized:
        encoded = self._tokenizer.encode(text, add_special_tokens=False)
        offsets = np.asarray(encoded.offsets, dtype=np.int64).reshape(-1, 2)
        return Tokenized(np.asarray(encoded.ids, dtype=np.int64), offsets[:, 0], offsets[:, 1])
