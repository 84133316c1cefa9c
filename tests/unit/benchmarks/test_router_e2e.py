from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from benchmarks.corpus import TOKENIZER
from benchmarks.router.e2e.figures import Cell, best_of, cell_of, rows_of, verdicts_of, write_report


def row(ttft_ms: float, *, reused: int | None = 0, outcome: str = "cold_route", status: str = "ok") -> dict[str, Any]:
    backend = None if reused is None else {"reused_tokens": reused, "boundary": 100}
    warm = {
        "status": status,
        "ttft_ms": ttft_ms if status == "ok" else None,
        "prompt_tokens": 1000,
        "cached_tokens": 64,
    }
    return {"warm": warm, "backend": backend, "route_outcome": outcome, "route_worker": "r0"}


def result(*rows: dict[str, Any], rate: float | None = 0.0) -> dict[str, Any]:
    return {"requests": list(rows), "aggregate": {"semantic_placement_rate_by_request": rate}}


def cell(policy: str, load: str, *ttft_ms: float, **more: Any) -> Cell:
    return cell_of(policy, load, [result(*(row(value, **more) for value in ttft_ms), rate=0.5)], 1.0)


def test_a_cell_counts_what_engines_and_router_reported() -> None:
    rounds = [
        result(row(100, reused=600, outcome="semantic_placement"), row(300, reused=None), rate=0.5),
        result(row(200), row(0, status="timeout"), rate=0.0),
    ]
    found = cell_of("semantic_placement", "rich", rounds, 9.0)
    assert (found.requests, found.failed, found.unconfirmed) == (4, 1, 1)
    assert found.mean_ms == 200
    assert list(found.round_means_ms) == [200.0, 200.0]
    assert found.exact_tokens == 100 + 64 + 100, "the connector's word, else what the engine calls cached"
    assert (found.reused_tokens, found.reused_requests) == (600, 1)
    assert found.routes == {"semantic_placement": 1, "cold_route": 3}
    assert found.placement_rate == 0.25
    json.dumps(found.as_record())


@pytest.mark.parametrize(
    ("robin", "best", "least", "words"),
    [
        ((400.0,), (100.0,), (101.0,), ("PASS", "PASS")),
        ((150.0,), (100.0,), (101.0,), ("NOT REACHED", "PASS")),
        ((400.0,), (100.0,), (90.0,), ("PASS", "NOT REACHED")),
    ],
)
def test_the_best_policy_of_the_rich_load_is_judged_on_both(
    tmp_path: Path, robin: tuple[float], best: tuple[float], least: tuple[float], words: tuple[str, str]
) -> None:
    cells = {
        (each.policy, each.load): each
        for each in (
            cell("round_robin", "rich", *robin),
            cell("semantic_placement", "rich", *best, reused=10),
            cell("round_robin", "free", 80.0),
            cell("semantic_placement", "free", 100.0),
            cell("least_loaded", "free", *least),
        )
    }
    assert best_of(cells) == "semantic_placement"
    verdicts = verdicts_of(cells, 10.0)
    assert tuple(verdict.word for verdict in verdicts[:2]) == words
    assert all(verdict.holds for verdict in verdicts[2:])
    assert [entry[0] for entry in rows_of(cells, "free")] == ["round_robin", "least_loaded", "semantic_placement"]
    report = tmp_path / "report.md"
    write_report(report, cells, verdicts, ["about"])
    assert report.read_text().count("| semantic_placement |") == 2


def test_nothing_measured_is_no_pass() -> None:
    assert best_of({}) is None
    assert {verdict.word for verdict in verdicts_of({}, 1.0)[:2]} == {"NOT MEASURED"}


def write_texts(folder: Path) -> None:
    def passage(number: int, part: int) -> dict[str, str]:
        return {"title": f"Title {number} {part}", "text": f"Sentence {number} {part} of a text. " * 60}

    records = [
        {"question": f"Question {number}?", "answers": [], "ctxs": [passage(number, part) for part in range(3)]}
        for number in range(12)
    ]
    with gzip.open(folder / "musique_s.json.gz", "wt") as stream:
        json.dump(records, stream)
    (folder / "longbench").mkdir()
    with gzip.open(folder / "longbench" / "multi_news.jsonl.gz", "wt") as stream:
        for number in range(9):
            stream.write(json.dumps({"context": f"Story {number} goes on. " * 100}) + "\n")
    with gzip.open(folder / "agent_miniswe.jsonl.gz", "wt") as stream:
        for session in range(3):
            for turn in range(4):
                text = f"Agent {session}. " + "A long system prompt. " * 200 + f" Turn {turn} ends."
                stream.write(json.dumps({"session_id": str(session), "input": text}) + "\n")


@pytest.mark.skipif(not TOKENIZER.is_file(), reason="no tokenizer; run: make models")
@pytest.mark.models
def test_rich_sessions_come_back_to_their_texts_and_free_prompts_share_nothing(tmp_path: Path) -> None:
    from benchmarks.router.e2e.load import free_items, rich_items

    write_texts(tmp_path)
    rich = rich_items(tmp_path, sessions=8, turns=3, tokens=200, seed=1, lanes=2)
    assert rich == rich_items(tmp_path, sessions=8, turns=3, tokens=200, seed=1, lanes=2)
    assert len({item.item_id for item in rich}) == len(rich) == 24
    assert all(item.is_stream for item in rich)
    assert [item.stream_id for item in rich] == ["lane-0"] * 12 + ["lane-1"] * 12
    sessions: dict[str, list[str]] = {}
    for item in rich:
        sessions.setdefault(item.source_id.partition("/")[0], []).append(item.recipient_prompt)
    assert len(sessions) == 8
    for name, prompts in sessions.items():
        first, second, third = (prompt[:40] for prompt in prompts)
        if name.startswith("agent"):
            assert first == second == third
            assert "Turn 2 ends." in prompts[2]
        else:
            assert first == second != third
            passages = prompts[0].partition("\n\n")[2].partition("\n\nQuestion")[0]
            assert passages in prompts[2]
    free = free_items(tmp_path, 6, 200, seed=1)
    heads = {item.recipient_prompt[:2] for item in free}
    assert len(heads) == len(free) == 6
    assert not any(item.is_stream for item in free)
