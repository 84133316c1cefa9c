"""Real texts as tokens: long documents with their real continuation, and questions over retrieved passages."""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from pathlib import Path

from benchmarks.corpus import TOKENIZER, CorpusUnavailableError, load_corpus
from benchmarks.discovery.codec import Codec

LONG_SOURCES = frozenset(
    {"multi_news", "natural_question", "legal_contract_qa", "coursera", "quality", "financial_qa", "multidoc_qa"}
)
UNRELATED_SOURCES = frozenset({"qmsum_test", "qmsum_val"})
QUESTIONS = "musique_s.json.gz"
TokenIds = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Question:
    """One query of a retrieval system with the passages found for it."""

    text: str
    answer: str
    passages: tuple[TokenIds, ...]
    passage_texts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Texts:
    """``unrelated`` documents (meetings) are never donors and share nothing with the others."""

    digest: str
    documents: tuple[TokenIds, ...]
    unrelated: tuple[TokenIds, ...]
    questions: tuple[Question, ...]


def read_texts(folder: Path, codec: Codec, tokenizer: Path = TOKENIZER) -> Texts:
    """``codec`` and ``tokenizer`` are of one model."""
    corpus = load_corpus(folder, tokenizer)
    documents = [d.tokens.tolist() for d in corpus.documents if d.source in LONG_SOURCES]
    unrelated = [d.tokens.tolist() for d in corpus.documents if d.source in UNRELATED_SOURCES]
    return Texts(
        corpus.digest,
        tuple(tuple(document) for document in documents),
        tuple(tuple(document) for document in unrelated),
        read_questions(folder / QUESTIONS, codec),
    )


def read_questions(path: Path, codec: Codec) -> tuple[Question, ...]:
    if not path.is_file():
        raise CorpusUnavailableError(f"no {path.name} in {path.parent.name}/; give the folder with --texts")
    with gzip.open(path, "rt", encoding="utf-8") as stream:
        records = json.load(stream)
    questions = []
    for record in records:
        shown = tuple(f"{passage['title']}\n{passage['text']}".strip() + "\n\n" for passage in record["ctxs"])
        passages = tuple(tuple(codec.encode(text).tolist()) for text in shown)
        questions.append(Question(record["question"], record["answers"][0], passages, shown))
    return tuple(questions)
