"""Requests of real streams: document questions of several applications, and agent sessions. Tokens and a session.

``as_trace`` is the same stream for the simulator.
"""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.discovery.codec import Codec
from sembase.trace.columns import BlockTrace, TreeInterner, block_trace

# Made up; the documents and the questions are L-Eval's.
APPLICATIONS = (
    ("a law firm", "Answer only from the text."),
    ("a school", "Explain to a child."),
    ("a bank", "Be exact with figures and cite."),
    ("a newspaper", "Write in short sentences."),
    ("a helpdesk", "Be polite and brief."),
    ("a library", "Name the chapter where the answer is."),
    ("a lab", "State uncertainty."),
    ("a start-up", "Use bullet points."),
)
DOCUMENT_TOKENS = 4_000
DOCUMENT_CHARACTERS = 24_000


class StreamRequest(NamedTuple):
    """Each part may repeat behind other parts."""

    parts: tuple[NDArray[np.uint32], ...]
    session: str | None  # requests of one session go to one replica; None: to any

    @property
    def tokens(self) -> NDArray[np.uint32]:
        return np.concatenate(self.parts)


def document_questions(folder: Path, codec: Codec, count: int, seed: int) -> list[StreamRequest]:
    """Questions about long documents, each asked by one of eight applications with its own instruction in front."""
    order = random.Random(seed)
    asked: list[tuple[int, NDArray[np.uint32], str]] = []
    for path in sorted(folder.glob("leval/*.jsonl.gz")):
        for record in _lines(path):
            document = codec.encode(record["input"][:DOCUMENT_CHARACTERS])[:DOCUMENT_TOKENS]
            asked += [(order.randrange(len(APPLICATIONS)), document, question) for question in record["instructions"]]
    order.shuffle(asked)
    heads = [
        codec.encode(f"You are assistant number {number} of {place}. {manner}\n\n")
        for number, (place, manner) in enumerate(APPLICATIONS)
    ]
    return [
        StreamRequest((heads[app], document, codec.encode("\n\nQuestion: " + question)), None)
        for app, document, question in asked[:count]
    ]


def agent_sessions(folder: Path, codec: Codec, count: int, name: str = "magagent") -> list[StreamRequest]:
    """Calls of agents in the order of their time; the calls of a session grow."""
    path = folder / f"agent_{name}.jsonl.gz"
    records = sorted(_lines(path), key=lambda record: record["timestamp"]) if path.is_file() else []
    texts = [record["input"] if isinstance(record["input"], str) else json.dumps(record["input"]) for record in records]
    return [
        StreamRequest((codec.encode(text),), str(record.get("session_id")))
        for text, record in zip(texts[:count], records[:count], strict=True)
    ]


def as_trace(name: str, requests: Sequence[StreamRequest], block_tokens: int) -> BlockTrace:
    """Each part begins a block of its own, so that equal parts have equal blocks wherever they are."""
    interner, keys, sessions = TreeInterner(), dict[bytes, int](), dict[str, int]()
    nodes, offsets = list[int](), [0]
    for request in requests:
        blocks = [
            part[start : start + block_tokens] for part in request.parts for start in range(0, part.size, block_tokens)
        ]
        row = np.array([keys.setdefault(block.tobytes(), len(keys)) for block in blocks], np.int64)
        nodes += interner.add(-1, row, np.array([block.size for block in blocks], np.int32)).tolist()
        offsets.append(len(nodes))
    session = [-1 if each.session is None else sessions.setdefault(each.session, len(sessions)) for each in requests]
    return block_trace(
        name,
        np.array(offsets, np.int64),
        np.array(nodes, np.int32),
        interner,
        block_tokens=block_tokens,
        arrival_ms=np.arange(len(requests), dtype=np.float64),
        session=np.array(session),
    )


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") as stream:
        yield from (json.loads(line) for line in stream if line.strip())
