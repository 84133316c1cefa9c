"""Windows of public traces as timed prompts of token ids whose blocks repeat exactly as the trace says.

In: the trace files beside the repository; out: ``Turn`` values in wall-clock time and their request bodies. A block id
gives the same tokens wherever it appears; another ``salt`` gives other tokens, so that one run cannot hit what another
left in a cache. Bodies take about 5.6 bytes per prompt token, held for one run.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scripts.data.folder import TRACES

MOONCAKE, CLAUDE_CODE = "mooncake_conversation_trace.jsonl.gz", "weka_claude_code.jsonl.gz"
MOONCAKE_BLOCK, CLAUDE_BLOCK = 512, 64
_LOWEST, _KINDS = 10_000, 39_000  # five digits each, within the vocabulary of the tokenizer that is served


@dataclass(frozen=True, slots=True)
class Turn:
    """One request. A session's turns follow each other: none is sent before the one before it has been answered."""

    due_s: float
    session: str
    block_ids: NDArray[np.uint64]
    block_tokens: int
    prompt_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True)
class Window:
    """``speed`` trace seconds pass in one second of the replay, which takes ``seconds``."""

    speed: float
    seconds: float
    max_prompt_tokens: int
    max_output_tokens: int


def mooncake(window: Window, begin_s: float = 600.0) -> list[Turn]:
    """Arrivals as recorded; every request is its own session."""
    turns = []
    for number, row in enumerate(_rows(TRACES / MOONCAKE)):
        due_s = (row["timestamp"] / 1000.0 - begin_s) / window.speed
        if 0.0 <= due_s < window.seconds and row["input_length"] <= window.max_prompt_tokens:
            ids = np.array(row["hash_ids"], np.uint64)
            output = min(row["output_length"], window.max_output_tokens)
            turns.append(Turn(due_s, f"m{number}", ids, MOONCAKE_BLOCK, row["input_length"], max(1, output)))
    return turns


def claude_code(window: Window, sessions: int) -> list[Turn]:
    """The first sessions that begin short, started evenly over the first half; turns of sub-agents are left out.

    Ids are local to a session. A session ends at its first prompt that is too long: what follows would hang in the air.
    """
    turns: list[Turn] = []
    taken = 0
    for row in _rows(TRACES / CLAUDE_CODE):
        own = [request for request in row["requests"] if request["type"] != "subagent"]
        if not own or own[0]["in"] > window.max_prompt_tokens / 2:
            continue
        turns += _turns_of(own, taken, taken / sessions * window.seconds / 2, window)
        taken += 1
        if taken == sessions:
            break
    return sorted(turns, key=lambda turn: turn.due_s)


def _turns_of(requests: list[dict[str, Any]], number: int, start_s: float, window: Window) -> list[Turn]:
    turns = []
    for request in requests:
        due_s = start_s + request["t"] / window.speed
        if request["in"] > window.max_prompt_tokens or due_s >= window.seconds:
            break
        ids = np.array(request["hash_ids"], np.uint64) + np.uint64(1_000_000 * (number + 1))
        prompt = min(request["in"], len(ids) * CLAUDE_BLOCK)
        output = max(1, min(request["out"], window.max_output_tokens))
        turns.append(Turn(due_s, f"c{number}", ids, CLAUDE_BLOCK, prompt, output))
    return turns


def prompt_of(turn: Turn, salt: int) -> NDArray[np.uint64]:
    """Token ids by a mixing function of (salt, block id, place in the block); the last block may be cut."""
    places = np.arange(turn.block_tokens, dtype=np.uint64)
    salted = np.uint64(salt * 0xD1B54A32D192ED03 % (1 << 64))
    mixed = (turn.block_ids * np.uint64(0x9E3779B97F4A7C15) + salted)[:, None] + places * np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(31)
    mixed *= np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(29)
    tokens: NDArray[np.uint64] = (mixed % np.uint64(_KINDS) + np.uint64(_LOWEST)).ravel()[: turn.prompt_tokens]
    return tokens


def body_of(turn: Turn, model: str, salt: int) -> bytes:
    fields = {
        "model": model,
        "max_tokens": turn.output_tokens,
        "stream": True,
        "ignore_eos": True,
        "stream_options": {"include_usage": True},
    }
    return json.dumps(fields)[:-1].encode() + b', "prompt": [' + _listed(prompt_of(turn, salt)) + b"]}"


def _listed(tokens: NDArray[np.uint64]) -> bytes:
    """``10001,10002``: five digits each, written by columns since a window has tens of millions of them."""
    text = np.full((len(tokens), 6), ord(","), np.uint8)
    for place in range(5):
        text[:, 4 - place] = (tokens // np.uint64(10**place) % np.uint64(10)).astype(np.uint8) + ord("0")
    return text.tobytes()[:-1]


def best_hit_share(turns: list[Turn]) -> float:
    """Of prompt tokens, in whole trace blocks, if one endless cache served all in the order they were due."""
    seen: set[int] = set()
    hits = total = 0
    for turn in turns:
        chain = 0
        for block in turn.block_ids.tolist():
            chain = hash((chain, block))
            hits += turn.block_tokens if chain in seen else 0
            seen.add(chain)
        total += turn.prompt_tokens
    return min(1.0, hits / total) if total else 0.0


def missing() -> str | None:
    absent = [name for name in (MOONCAKE, CLAUDE_CODE) if not (TRACES / name).is_file()]
    return f"no {' and no '.join(absent)} in {TRACES}; run: make data" if absent else None


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)
