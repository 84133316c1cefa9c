"""Generated files with the names and the form of the real ones, so that every documented command runs from a clone.

Texts are random words: the same passages come back in other surroundings, sessions grow, caches see what repeats. The
figures of such a run say nothing about real traffic. Same seed, same bytes; about 4 MB, a few seconds.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

SEED = 22
_TEXT = """
the of and to in is was for that on with as by from it at are this which be or an have not one were has more
will its two also had first can after time year new may other most some such many work people state city water
house small large number part school book line world group early history known river road north south war law
court party music film series member game team season record player system model data process report result
value method paper market price company service product plan board office paid month day night morning letter
answer question table page order list name place power land field station bridge island forest garden winter
summer king queen captain
"""
_WORDS = _TEXT.split()
_NAMES = [
    f"{start}{end}" for start in ("Mar", "Tor", "Bel", "Quin", "Sal", "Dor") for end in ("ina", "vald", "etta", "on")
]
_LEVAL = (
    *("coursera", "quality", "tpo", "financial_qa"),
    *("legal_contract_qa", "multidoc_qa", "natural_question", "scientific_qa"),
)
Record = dict[str, Any]


def write_made_up(folder: Path, seed: int = SEED) -> None:
    draws = Random(seed)
    texts, traces = folder / "text", folder / "traces"
    for name in _LEVAL:
        _json_lines(texts / "leval" / f"{name}.jsonl.gz", (_exam(draws, name) for _ in range(5)))
    _json_lines(texts / "longbench" / "multi_news.jsonl.gz", (_long_document(draws, number) for number in range(30)))
    pool = [_prose(draws, 110) for _ in range(240)]
    _json(texts / "musique_s.json.gz", [_retrieval(draws, pool) for _ in range(60)])
    for part in ("test", "val"):
        _json_lines(texts / f"qmsum_{part}.jsonl.gz", (_meeting(draws) for _ in range(8)))
    for number, name in enumerate(("miniswe", "magagent", "taubench")):
        calls = (call for session in range(8) for call in _session(draws, f"{name}-{session}", 12, 160 >> number))
        _json_lines(texts / f"agent_{name}.jsonl.gz", calls)
    _json(texts / "tau_bench_airline.json.gz", [_trajectory(draws, number) for number in range(40)])
    _json_lines(texts / "kv-retrieval-75_keys.jsonl.gz", (_needles(draws) for _ in range(80)))
    _json_lines(traces / "mooncake_conversation_trace.jsonl.gz", _block_trace(draws, 2_000, chats=400))
    _json_lines(traces / "mooncake_synthetic_trace.jsonl.gz", _block_trace(draws, 600, chats=60))
    _json_lines(traces / "weka_claude_code.jsonl.gz", (_coding_session(draws, number) for number in range(40)))
    for name in ("code", "conv"):
        _rows(
            traces / f"azure_2023_{name}.csv.gz",
            ("TIMESTAMP", "ContextTokens", "GeneratedTokens"),
            _arrivals(draws, 2_000),
        )
    _rows(
        folder / "cache" / "cloudphysics_io.csv.gz",
        ("version", "time", "op", "size", "lbn"),
        _block_reads(draws, 20_000),
    )


def _prose(draws: Random, words: int) -> str:
    sentences, left = [], words
    while left > 0:
        length = min(left, draws.randrange(7, 19))
        chosen = [_WORDS[min(int(draws.paretovariate(0.7)) - 1, len(_WORDS) - 1)] for _ in range(length)]
        chosen[draws.randrange(length)] = draws.choice((draws.choice(_NAMES), str(draws.randrange(10, 9_999))))
        sentences.append(" ".join(chosen).capitalize() + ".")
        left -= length
    return " ".join(sentences)


def _exam(draws: Random, source: str) -> Record:
    questions = [_prose(draws, 12).rstrip(".") + "?" for _ in range(4)]
    answers = [_prose(draws, 8) for _ in questions]
    text = "\n\n".join(_prose(draws, 180) for _ in range(50))
    return {"instructions": questions, "outputs": answers, "input": text, "source": source, "evaluation": "exam"}


def _long_document(draws: Random, number: int) -> Record:
    context = "\n".join(f"Passage {i + 1}:\n{_prose(draws, 350)}" for i in range(4))
    facts = {
        "length": 1_400,
        "dataset": "multi_news",
        "language": "en",
        "all_classes": None,
        "_id": f"made-up-{number}",
    }
    return {"input": "", "context": context, "answers": [_prose(draws, 60)], **facts}


def _retrieval(draws: Random, pool: list[str]) -> Record:
    passages = [{"title": "", "text": text} for text in draws.sample(pool, 10)]
    return {"ctxs": passages, "question": _prose(draws, 12).rstrip(".") + "?", "answers": [draws.choice(_NAMES)]}


def _meeting(draws: Random) -> Record:
    turns = [{"speaker": draws.choice(_NAMES), "content": _prose(draws, 40)} for _ in range(220)]
    query = {"query": _prose(draws, 10).rstrip(".") + "?", "answer": _prose(draws, 40)}
    specific = {**query, "relevant_text_span": [["10", "30"]]}
    topics = [{"topic": _prose(draws, 4), "relevant_text_span": [["0", "40"]]}]
    return {
        "topic_list": topics,
        "general_query_list": [query],
        "specific_query_list": [specific],
        "meeting_transcripts": turns,
    }


def _session(draws: Random, name: str, calls: int, words: int) -> Iterable[Record]:
    time, prompt = 1_760_000_000_000_000 + draws.randrange(10**9), _prose(draws, 4 * words)
    for _ in range(calls):
        answer = _prose(draws, words)
        yield {"timestamp": time, "input": prompt, "output": answer, "session_id": name}
        prompt = f"{prompt}\n\n{answer}\n\n{_prose(draws, words)}"
        time += draws.randrange(2_000_000, 30_000_000)


def _trajectory(draws: Random, number: int) -> Record:
    rules = Random(number % 3)
    turns = [{"role": "system", "content": "\n\n".join(_prose(rules, 40) for _ in range(10))}]
    turns += [{"role": ("user", "assistant")[i % 2], "content": _prose(draws, 50)} for i in range(18)]
    return {"task_id": number, "reward": float(number % 2), "info": {}, "traj": turns, "trial": 0}


def _needles(draws: Random) -> Record:
    pairs = [[str(UUID(int=draws.getrandbits(128))) for _ in range(2)] for _ in range(75)]
    key, value = draws.choice(pairs)
    return {"ordered_kv_records": pairs, "key": key, "value": value}


def _block_trace(draws: Random, requests: int, chats: int) -> Iterable[Record]:
    """Chats that grow by a block or more per turn, all behind the same first block; 512-token blocks, one hour."""
    known: list[list[int]] = [[0] for _ in range(chats)]
    fresh = 1
    for number in range(requests):
        chat = min(int(draws.paretovariate(0.6)) - 1, chats - 1)
        added = draws.randrange(1, 8)
        if len(known[chat]) + added > 120:
            known[chat] = [0]
        known[chat] += range(fresh, fresh + added)
        fresh += added
        blocks = list(known[chat])
        output = draws.randrange(20, 600)
        tokens = len(blocks) * 512 - draws.randrange(0, 400)
        time = 3_600_000 * number // requests
        yield {"timestamp": time, "input_length": tokens, "output_length": output, "hash_ids": blocks}


def _coding_session(draws: Random, number: int) -> Record:
    requests, blocks, time = [], list(range(1, 120)), 0.0
    for _ in range(14):
        blocks = [*blocks, *range(len(blocks) + 1, len(blocks) + draws.randrange(2, 30))]
        requests.append(
            {
                "t": round(time, 3),
                "type": "n",
                "model": "made-up",
                "in": len(blocks) * 64,
                "out": draws.randrange(20, 400),
                "hash_ids": blocks,
                "input_types": ["text"],
                "output_types": ["text"],
                "stop": "tool_use",
                "api_time": 2.0,
                "think_time": 1.0,
            }
        )
        time += draws.uniform(3.0, 40.0)
    facts = {"id": f"made_up_{number:04}", "models": ["made-up"], "block_size": 64, "hash_id_scope": "local"}
    return {**facts, "tool_tokens": 4_000, "system_tokens": 1_000, "requests": requests}


def _arrivals(draws: Random, count: int) -> Iterable[tuple[object, ...]]:
    seconds = 0.0
    for _ in range(count):
        seconds += draws.expovariate(0.6)
        hour, rest = divmod(seconds, 3_600)
        minute, second = divmod(rest, 60)
        stamp = f"2023-11-16 {int(18 + hour):02}:{int(minute):02}:{second:010.7f}"
        yield stamp, draws.randrange(30, 7_000), draws.randrange(5, 400)


def _block_reads(draws: Random, count: int) -> Iterable[tuple[object, ...]]:
    for number in range(count):
        yield 1, 5_633_898 + number // 8, "2a", 4_096, 1_000_000 + int(draws.paretovariate(0.5)) % 50_000


def _json(path: Path, value: object) -> None:
    _write(path, json.dumps(value))


def _json_lines(path: Path, records: Iterable[Record]) -> None:
    _write(path, "".join(json.dumps(record) + "\n" for record in records))


def _rows(path: Path, head: tuple[str, ...], rows: Iterable[tuple[object, ...]]) -> None:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows([head, *rows])
    _write(path, text.getvalue())


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text.encode(), mtime=0))
