"""Real texts beside the repository -> named documents. Read by the corpus, which tokenizes and caches them."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripts.data.folder import TEXTS

ROOT = Path(__file__).resolve().parent.parent
DEFAULT_TEXTS = TEXTS


@dataclass(frozen=True, slots=True)
class TextDocument:
    """One text of a source, for instance one meeting of ``qmsum``."""

    source: str
    name: str
    text: str


def read_documents(texts: Path) -> Iterator[TextDocument]:
    """Every document the folder holds, in a fixed order. Files that are absent are skipped."""
    for pattern, reader in READERS:
        for path in sorted(texts.glob(pattern)):
            source = path.name.split(".")[0]
            for number, text in enumerate(reader(_records(path))):
                if text.strip():
                    yield TextDocument(source, f"{source}/{number}", text)


def document_files(texts: Path) -> list[Path]:
    return [path for pattern, _ in READERS for path in sorted(texts.glob(pattern))]


def _records(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") as stream:
        text = stream.read()
    if path.name.endswith(".jsonl.gz"):
        return [json.loads(line) for line in text.splitlines() if line.strip()]
    records: list[dict[str, Any]] = json.loads(text)
    return records


def _inputs(records: list[dict[str, Any]]) -> Iterator[str]:
    yield from (record["input"] for record in records)


def _contexts(records: list[dict[str, Any]]) -> Iterator[str]:
    yield from (record["context"] for record in records)


def _passages(records: list[dict[str, Any]]) -> Iterator[str]:
    for record in records:
        yield "\n\n".join(f"{passage['title']}\n{passage['text']}".strip() for passage in record["ctxs"])


def _meetings(records: list[dict[str, Any]]) -> Iterator[str]:
    for record in records:
        yield "\n".join(f"{turn['speaker']}: {turn['content']}" for turn in record["meeting_transcripts"])


def _sessions(records: list[dict[str, Any]]) -> Iterator[str]:
    """The longest prompt of each agent session: earlier calls of a session are prefixes of later ones."""
    longest: dict[str, str] = {}
    for number, record in enumerate(records):
        session = record.get("session_id") or str(number)
        if len(record["input"]) > len(longest.get(session, "")):
            longest[session] = record["input"]
    yield from longest.values()


def _trajectories(records: list[dict[str, Any]]) -> Iterator[str]:
    for record in records:
        yield "\n".join(f"{turn['role']}: {turn.get('content') or ''}" for turn in record["traj"])


READERS: tuple[tuple[str, Callable[[list[dict[str, Any]]], Iterator[str]]], ...] = (
    ("leval/*.jsonl.gz", _inputs),
    ("longbench/*.jsonl.gz", _contexts),
    ("musique_s.json.gz", _passages),
    ("qmsum_*.jsonl.gz", _meetings),
    ("agent_*.jsonl.gz", _sessions),
    ("tau_bench_airline.json.gz", _trajectories),
)
