"""Documents -> token ids, cached under ``.cache/`` by the digest of the texts and the tokenizer."""

from __future__ import annotations

import hashlib
import json
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scripts.models.known import SMOLLM2

from benchmarks.documents import ROOT, document_files, read_documents

Tokens = npt.NDArray[np.uint32]
CACHE = ROOT / ".cache" / "benchmarks"
TOKENIZER = SMOLLM2.tokenizer
FORMAT = 2


class CorpusUnavailableError(Exception):
    """The texts or the tokenizer are not there; the message says how to get them."""


@dataclass(frozen=True, slots=True)
class Document:
    source: str
    name: str
    tokens: Tokens


@dataclass(frozen=True, slots=True)
class Corpus:
    """Tokenized documents and how they came about, for the record of a run."""

    digest: str
    documents: tuple[Document, ...]

    @property
    def total_tokens(self) -> int:
        return sum(document.tokens.size for document in self.documents)

    def tokens_by_source(self) -> dict[str, int]:
        totals: dict[str, int] = {}
        for document in self.documents:
            totals[document.source] = totals.get(document.source, 0) + int(document.tokens.size)
        return totals


def load_corpus(texts: Path, tokenizer: Path = TOKENIZER) -> Corpus:
    files = document_files(texts)
    if not files:
        raise CorpusUnavailableError(f"no texts under {texts}; run: make data, or give their folder with --texts")
    if not tokenizer.is_file():
        raise CorpusUnavailableError("no tokenizer; run: make models")
    digest = _digest([tokenizer, *files])
    cached = CACHE / f"corpus-{digest}.npz"
    if not cached.is_file():
        _tokenize(texts, tokenizer, cached)
    return _read(cached, digest)


def _digest(files: list[Path]) -> str:
    total = hashlib.sha256(str(FORMAT).encode())
    for path in files:
        total.update(path.name.encode() + hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()[:16]


def _tokenize(texts: Path, tokenizer: Path, cached: Path) -> None:
    from tokenizers import Tokenizer

    encoder = Tokenizer.from_file(str(tokenizer))
    started = time.perf_counter()
    names: list[tuple[str, str]] = []
    pieces: list[Tokens] = []
    for document in read_documents(texts):
        ids = encoder.encode(document.text, add_special_tokens=False).ids
        names.append((document.source, document.name))
        pieces.append(np.asarray(ids, dtype=np.uint32))
        if len(pieces) % 200 == 0:
            print(f"[corpus] {len(pieces)} documents tokenized, {time.perf_counter() - started:.0f} s", flush=True)
    cached.parent.mkdir(parents=True, exist_ok=True)
    partial = cached.with_suffix(".partial.npz")
    lengths = np.asarray([piece.size for piece in pieces], dtype=np.int64)
    np.savez(partial, tokens=np.concatenate(pieces), lengths=lengths, names=np.asarray(json.dumps(names)))
    partial.rename(cached)


def _read(cached: Path, digest: str) -> Corpus:
    with np.load(cached) as stored:
        tokens, lengths = stored["tokens"], stored["lengths"]
        names = json.loads(str(stored["names"]))
    pieces = np.split(tokens, np.cumsum(lengths)[:-1])
    documents = tuple(Document(source, name, piece) for (source, name), piece in zip(names, pieces, strict=True))
    return Corpus(digest, documents)
