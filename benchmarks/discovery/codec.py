"""Text to tokens and back: the SmolLM2 tokenizer for real texts, one token per word for made-up ones."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import numpy as np

from benchmarks.corpus import Corpus, Document, Tokens


class Codec(Protocol):
    @property
    def vocabulary(self) -> int: ...

    def encode(self, text: str) -> Tokens: ...

    def decode(self, tokens: Tokens) -> str: ...


class TokenizerCodec:
    def __init__(self, path: Path) -> None:
        from tokenizers import Tokenizer

        self._tokenizer = Tokenizer.from_file(str(path))
        self.vocabulary = int(self._tokenizer.get_vocab_size())

    def encode(self, text: str) -> Tokens:
        return np.asarray(self._tokenizer.encode(text, add_special_tokens=False).ids, dtype=np.uint32)

    def decode(self, tokens: Tokens) -> str:
        return str(self._tokenizer.decode(tokens.tolist(), skip_special_tokens=False))


class WordCodec:
    """One id per word, given out as words appear. For runs without the real texts."""

    def __init__(self) -> None:
        self._ids: dict[str, int] = {}
        self._words: list[str] = []

    @property
    def vocabulary(self) -> int:
        return max(1, len(self._words))

    def encode(self, text: str) -> Tokens:
        ids = []
        for word in text.split(" "):
            if word not in self._ids:
                self._ids[word] = len(self._words)
                self._words.append(word)
            ids.append(self._ids[word])
        return np.asarray(ids, dtype=np.uint32)

    def decode(self, tokens: Tokens) -> str:
        return " ".join(self._words[i] for i in tokens.tolist())


def made_up_corpus(codec: WordCodec, documents: int = 120, words: int = 6_000, seed: int = 3) -> Corpus:
    """Zipf words with names, numbers and small verbs, so that every case has something to change."""
    random = np.random.default_rng(seed)
    names = [f"{start}{end}" for start in ("Mar", "Tor", "Bel", "Quin", "Sal") for end in ("ina", "vald", "etta", "or")]
    verbs = ["is", "was", "are", "will", "can"]
    kinds = [names, verbs, [str(number) for number in range(10, 9_999, 7)]]
    common = [f"word{i}" for i in range(8_000)]
    made = []
    for number in range(documents):
        ranks = np.minimum(random.zipf(1.3, words) - 1, len(common) - 1)
        text = [common[rank] for rank in ranks]
        for position in random.choice(words, words // 8, replace=False).tolist():
            kind = int(random.integers(3))
            text[position] = str(random.choice(kinds[kind]))
        made.append(Document("made_up", f"made_up/{number}", codec.encode(" ".join(text))))
    return Corpus("made-up", tuple(made))
