"""Real documents as equal donor rows after one real system prompt, in a file every process can read."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks.corpus import CACHE, Corpus, Tokens
from benchmarks.planner.tokens import DONOR_TOKENS, HEAD_TOKENS

# The agent policy at the head of these conversations is the system prompt; whole sources are kept back as unseen text.
HEAD_SOURCE = "tau_bench_airline"
UNSEEN_SOURCES = ("quality", "financial_qa", "tpo", "coursera")
FORMAT = 1


def real_rows(corpus: Corpus) -> Path:
    """Writes, once, ``head``, ``rows`` (one per donor) and ``unseen`` text of documents that are in no row."""
    path = CACHE / f"real-rows-{FORMAT}-{corpus.digest}.npz"
    if path.is_file():
        return path
    body = DONOR_TOKENS - HEAD_TOKENS
    rows: list[Tokens] = []
    unseen: list[Tokens] = []
    head = next(d.tokens[:HEAD_TOKENS] for d in corpus.documents if d.source == HEAD_SOURCE)
    for document in corpus.documents:
        if document.source in UNSEEN_SOURCES:
            unseen.append(document.tokens)
        else:
            rows += [document.tokens[at : at + body] for at in range(0, document.tokens.size - body + 1, body)]
    order = np.random.default_rng(5).permutation(len(rows))
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial.npz")
    np.savez(partial, head=head, rows=np.stack([rows[i] for i in order]), unseen=np.concatenate(unseen))
    partial.rename(path)
    return path
