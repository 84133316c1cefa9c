"""Text to token ids: a model's tokenizer.json (extra ``tokenizer``), or a built-in rule that belongs to no model."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from sembase.errors import ConfigurationError, MissingDependencyError
from sembase.registry import load_target

BUILT_IN: Final = "builtin"
NOT_A_MODEL: Final = (
    "the built-in tokenizer is not a model's tokenizer: token and block counts are indicative only. "
    "Pass --tokenizer PATH with the tokenizer.json of the model you serve"
)
_FILE_NAME: Final = "tokenizer.json"
_HUB_NAME: Final = re.compile(r"[\w.-]+/[\w.-]+")

# Words with their leading space, digits by threes, single signs, white space as it is: case and white space count, as
# they do for a model's tokenizer. Ideographs and kana are tokens of their own: a sentence of them has no spaces.
_PIECE: Final = re.compile(
    r" ?[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]"
    r"| ?[^\W\d_\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]+"
    r"| ?\d{1,3}"
    r"| ?[^\w\s]"
    r"|_+"
    r"|\s+(?!\S)|\s"
)
_ID_MASK: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Tokenized:
    """``ids[i]`` covers the characters ``starts[i] <= c < ends[i]``."""

    ids: NDArray[np.int64]
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]

    def overlapping(self, start: int, end: int) -> NDArray[np.int64]:
        """Positions of the tokens that hold any of the characters; none for an empty range."""
        return np.flatnonzero((self.starts < end) & (self.ends > start)) if start < end else np.empty(0, np.int64)


class TokenCounter(Protocol):
    def count(self, text: str) -> int: ...


class Tokenizer(TokenCounter, Protocol):
    @property
    def name(self) -> str:
        """What results say: never a path of this machine."""

    @property
    def digest(self) -> str | None:
        """The sha256 of the tokenizer's file, if it has one."""

    @property
    def is_model_tokenizer(self) -> bool: ...

    def encode(self, text: str) -> Tokenized: ...

    def ids(self, text: str) -> NDArray[np.int32]: ...


class _HashedIds(dict[str, int]):
    """The same id in every process and on every machine; 31 bits, so that two pieces may share one."""

    def __missing__(self, piece: str) -> int:
        digest = hashlib.blake2b(piece.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        number = self[piece] = int.from_bytes(digest, "big") & _ID_MASK
        return number


class _CountedIds(dict[str, int]):
    """The next free id for a new piece: equal ids are equal pieces, but other texts before it give other ids."""

    def __missing__(self, piece: str) -> int:
        number = self[piece] = len(self)
        return number


class WordTokenizer:
    """The built-in rule. Costs about 150 bytes for every distinct piece for as long as the tokenizer lives."""

    name: Final = BUILT_IN
    is_model_tokenizer: Final = False
    digest: Final = None

    def __init__(self, *, counted_ids: bool = False) -> None:
        self._ids: dict[str, int] = _CountedIds() if counted_ids else _HashedIds()

    def encode(self, text: str) -> Tokenized:
        pieces = _PIECE.findall(text)
        ids = np.fromiter(map(self._ids.__getitem__, pieces), np.int64, len(pieces))
        # The pieces tile the text, so their lengths give their places.
        ends = np.cumsum(np.fromiter(map(len, pieces), np.int64, len(pieces)))
        return Tokenized(ids, np.concatenate([np.zeros(1, np.int64), ends[:-1]])[: len(pieces)], ends)

    def ids(self, text: str) -> NDArray[np.int32]:
        return np.fromiter(map(self._ids.__getitem__, _PIECE.findall(text)), np.int32)

    def count(self, text: str) -> int:
        return len(_PIECE.findall(text))


class FileTokenizer:
    """A model's own tokenizer from its tokenizer.json, or from the folder that holds it."""

    is_model_tokenizer: Final = True

    def __init__(self, path: Path) -> None:
        _import_tokenizers(path, "tokenizer")
        cached = None if path.exists() else _in_hub_cache(str(path))
        file = cached or (path / _FILE_NAME if path.is_dir() else path)
        if not file.is_file():
            raise ConfigurationError(
                f"--tokenizer {path}: no such tokenizer.json file, nor a directory that holds one"
                + _hub_advice(str(path))
            )
        content = file.read_bytes()
        self._tokenizer = read_tokenizer(content, file, "tokenizer")
        own = f"{file.parent.name}/{file.name}" if file.name == _FILE_NAME else file.name
        self.name = own if cached is None else str(path)
        self.digest = hashlib.sha256(content).hexdigest()

    def encode(self, text: str) -> Tokenized:
        encoded = self._tokenizer.encode(text, add_special_tokens=False)
        offsets = np.asarray(encoded.offsets, dtype=np.int64).reshape(-1, 2)
        return Tokenized(np.asarray(encoded.ids, dtype=np.int64), offsets[:, 0], offsets[:, 1])

    def ids(self, text: str) -> NDArray[np.int32]:
        return np.asarray(self._tokenizer.encode(text, add_special_tokens=False).ids, dtype=np.int32)

    def count(self, text: str) -> int:
        return len(self._tokenizer.encode(text, add_special_tokens=False).ids)


class RecentCounts:
    """Token counts of the last texts, by their hash: in a log of conversations each text returns with every turn."""

    def __init__(self, counter: TokenCounter, *, max_texts: int = 1 << 16) -> None:
        self._counter = counter
        self._max_texts = max_texts
        self._counts: dict[bytes, int] = {}

    def count(self, text: str) -> int:
        key = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        known = self._counts.pop(key, None)
        counted = self._counts[key] = self._counter.count(text) if known is None else known
        if len(self._counts) > self._max_texts:
            del self._counts[next(iter(self._counts))]
        return counted


def read_tokenizer(content: bytes, file: Path, extra: str) -> Any:
    """The ``tokenizers.Tokenizer`` in a file's content. ``extra`` is what to install if that library is missing."""
    tokenizers = _import_tokenizers(file, extra)
    try:
        tokenizer = tokenizers.Tokenizer.from_buffer(content)
    except Exception as error:  # noqa: BLE001 - the library raises plain Exception for a file it cannot parse
        raise ConfigurationError(f"--tokenizer {file} cannot be loaded as a tokenizer.json: {error}") from None
    # Truncation or padding saved with the file would silently change every count.
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _in_hub_cache(name: str) -> Path | None:
    """The tokenizer of a model by its hub name, where it was downloaded before. Never goes to the network."""
    if not _HUB_NAME.fullmatch(name):
        return None
    try:
        find = load_target("huggingface_hub:try_to_load_from_cache")  # comes with tokenizers
    except ImportError:
        return None
    found = find(name, _FILE_NAME)
    return Path(found) if isinstance(found, str) else None


def _hub_advice(name: str) -> str:
    if not _HUB_NAME.fullmatch(name):
        return ""
    return (
        ", nor a model in the local hub cache. Nothing is downloaded here: "
        f"run `hf download {name} {_FILE_NAME}` once, then this command again"
    )


def _import_tokenizers(path: Path, extra: str) -> Any:
    try:
        import tokenizers  # noqa: PLC0415  (optional: needed only for a model's tokenizer)
    except ModuleNotFoundError:
        raise MissingDependencyError("tokenizers", extra, f"--tokenizer {path}") from None
    return tokenizers


def open_tokenizer(name: str | None, *, counted_ids: bool = False) -> Tokenizer:
    """``None`` or ``builtin`` for the built-in rule, else a tokenizer.json file or the directory that holds one.

    The built-in ids are hashes, equal in every process; with ``counted_ids`` they never collide.
    """
    return WordTokenizer(counted_ids=counted_ids) if name is None or name == BUILT_IN else FileTokenizer(Path(name))
