"""Many novel retrieval queries in random order: does reuse last, or decay once passages arrive in blended requests?"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from benchmarks.console import progress, show_table
from benchmarks.discovery.codec import Codec
from benchmarks.estimates import mean_difference
from benchmarks.targets import Verdict
from benchmarks.vllm.client import Ask
from benchmarks.vllm.servers import Subject
from benchmarks.vllm.texts import Question, TokenIds
from benchmarks.vllm.workload import join

QUERIES = 150
PASSAGES = 6
WINDOW_TOKENS = 64
SALT = "soak"
INSTRUCTION = "Answer the question from the passages below. Say only what they support.\n\n"


@dataclass(frozen=True, slots=True)
class Query:
    """``repeated_tokens`` lie in windows that some earlier prompt held too: an upper bound of reuse."""

    number: int
    prompt_tokens: int
    exact_tokens: int
    reused_tokens: int
    repeated_tokens: int
    outcome: str
    reason: str | None
    total_ms: float

    @property
    def reused_share(self) -> float:
        return self.reused_tokens / self.prompt_tokens


class SeenWindows:
    """All windows of 64 tokens of earlier prompts."""

    def __init__(self) -> None:
        self._seen: set[int] = set()

    def repeated(self, tokens: TokenIds) -> int:
        """How many positions lie in a window seen before; then this prompt is seen too."""
        array = np.asarray(tokens, dtype=np.uint32)
        covered = np.zeros(array.size, dtype=bool)
        keys = [hash(array[start : start + WINDOW_TOKENS].tobytes()) for start in range(array.size - WINDOW_TOKENS + 1)]
        for start, key in enumerate(keys):
            if key in self._seen:
                covered[start : start + WINDOW_TOKENS] = True
        self._seen.update(keys)
        return int(covered.sum())


def prompts(questions: Sequence[Question], codec: Codec, queries: int, seed: int) -> list[TokenIds]:
    """Each question once, its passages shuffled."""
    random = np.random.default_rng(seed)
    head = tuple(codec.encode(INSTRUCTION).tolist())
    made = []
    for index in random.permutation(len(questions))[:queries].tolist():
        question = questions[index]
        chosen = random.permutation(len(question.passages))[:PASSAGES].tolist()
        tail = tuple(codec.encode(f"Question: {question.text}\nAnswer:").tolist())
        made.append((*head, *join(tuple(question.passages[i] for i in chosen)), *tail))
    return made


def run(subject: Subject, asked: Sequence[TokenIds], utilisation: float) -> list[Query]:
    """Plain traffic: the exact cache is left alone, every request may reuse and be captured.

    Each query is followed by a pause in proportion to its time, so that the server is busy for ``utilisation`` of it.
    """
    seen = SeenWindows()
    queries = []
    for number, prompt in enumerate(asked):
        repeated = seen.repeated(prompt)
        reply = subject.client.whole(Ask(prompt, 1, SALT, reuse=True, capture=True))
        provenance = reply.provenance or {}
        query = Query(
            number,
            len(prompt),
            int(provenance.get("exact_prefix_tokens", 0)),
            int(provenance.get("reused_tokens", 0)),
            repeated,
            str(provenance.get("outcome", "unknown")),
            provenance.get("reason"),
            reply.total_ms,
        )
        queries.append(query)
        time.sleep(reply.total_ms / 1e3 * (1.0 / utilisation - 1.0))
        if (number + 1) % 10 == 0:
            share = sum(q.reused_tokens for q in queries[-10:]) / sum(q.prompt_tokens for q in queries[-10:])
            progress(f"soak: {number + 1} of {len(asked)} queries, reused fraction of the last ten {share:.1%}")
    return queries


def thirds(queries: Sequence[Query]) -> list[Sequence[Query]]:
    cut = len(queries) // 3
    return [queries[:cut], queries[cut : 2 * cut], queries[2 * cut :]]


def show(queries: Sequence[Query]) -> None:
    table = []
    for name, part in zip(("first", "middle", "last"), thirds(queries), strict=True):
        tokens = sum(query.prompt_tokens for query in part)
        repeated = sum(query.repeated_tokens for query in part)
        reused = sum(query.reused_tokens for query in part)
        outcomes = Counter(
            query.outcome if query.reason is None else f"{query.outcome}: {query.reason}" for query in part
        )
        table.append(
            (
                f"{name} {len(part)}",
                f"{tokens:,}",
                f"{repeated / tokens:.1%}",
                f"{reused / tokens:.1%}",
                None if not repeated else f"{reused / repeated:.1%}",
                f"{float(np.median([query.total_ms for query in part])):.0f}",
                ", ".join(f"{count} {outcome}" for outcome, count in outcomes.most_common()),
            )
        )
    columns = ("queries", "tokens", "repeated (64+)", "reused", "reused of repeated", "median ms", "outcomes")
    show_table("Soak: novel retrieval queries in random order", columns, table)


def verdicts(queries: Sequence[Query]) -> list[Verdict]:
    """The verdict uses the estimate; the printed interval shows how much of it is due to the random order."""
    _, middle, last = thirds(queries)
    change = mean_difference([q.reused_share for q in last], [q.reused_share for q in middle])
    if change is not None:
        progress(f"soak: reused fraction, last third minus middle third: {change.shown('{:+.3f}')}")
    estimate = None if change is None else change.estimate
    return [Verdict("soak: reused fraction, last minus middle third", ">=", 0.0, estimate)]


def as_record(queries: Sequence[Query]) -> list[dict[str, Any]]:
    return [asdict(query) for query in queries]
