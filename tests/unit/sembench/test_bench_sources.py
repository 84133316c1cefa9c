from __future__ import annotations

import gzip
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from sembase.errors import ConfigurationError, MissingDependencyError
from sembench.workload.record import SourceRecord
from sembench.workload.sources import BUILT_IN, SOURCES, SourceRequest

V1 = {"input": "Why?", "context": "Because.", "answers": ["So"], "_id": "x1", "language": "en", "length": 1}
V2 = {
    "_id": "y1",
    "domain": "Law",
    "sub_domain": "Contracts",
    "difficulty": "hard",
    "length": "short",
    "question": "Which?",
    "choice_A": "a",
    "choice_B": "b",
    "choice_C": "c",
    "choice_D": "d",
    "answer": "C",
    "context": "A long contract.",
}


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = "".join(json.dumps(row) + "\n" for row in rows) if ".jsonl" in path.name else json.dumps(rows)
    path.write_bytes(gzip.compress(lines.encode()) if path.name.endswith(".gz") else lines.encode())


def read(profile: str, directory: Path | None, *datasets: str, most: int | None = None) -> list[SourceRecord]:
    return SOURCES.get(profile)(SourceRequest(datasets, directory, most))


@pytest.mark.parametrize("name", ["qasper.jsonl", "qasper.jsonl.gz", "qasper.json", "qasper.json.gz"])
def test_longbench_v1_from_any_ending(tmp_path: Path, name: str) -> None:
    write(tmp_path / name, [V1, {**V1, "_id": "x2"}])
    records = read("longbench-v1", tmp_path, "qasper", most=1)
    assert [(r.dataset, r.source_id, r.context, r.question, r.answers) for r in records] == [
        ("qasper", "x1", "Because.", "Why?", ("So",))
    ]


def test_longbench_v1_from_the_published_zip(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "data.zip", "w") as archive:
        archive.writestr("data/qasper.jsonl", json.dumps(V1) + "\n")
        archive.writestr("data/lcc.jsonl", json.dumps({**V1, "_id": "z"}) + "\n")
    assert [r.source_id for r in read("longbench-v1", tmp_path, "lcc", "qasper")] == ["z", "x1"]


def test_longbench_v2_appends_the_choices_and_splits_by_domain(tmp_path: Path) -> None:
    write(tmp_path / "data.json", [V2, {**V2, "_id": "y2", "domain": "News"}])
    law, press = read("longbench-v2", tmp_path)
    assert (law.dataset, press.dataset) == ("Law", "News")
    assert law.question.splitlines()[1:5] == ["A. a", "B. b", "C. c", "D. d"]
    assert law.answers == ("C",)
    assert [r.source_id for r in read("longbench-v2", tmp_path, "News")] == ["y2"]


def test_longbench_without_files_names_extra_and_hub() -> None:
    pytest.importorskip("semblend")
    try:
        import datasets  # noqa: F401
    except ModuleNotFoundError:
        with pytest.raises(MissingDependencyError, match=r"--data-dir DIR .*hub.*kvmend\[longbench\]"):
            read("longbench-v1", None, "qasper")
    else:
        pytest.skip("the datasets library is installed: its absence cannot be tested here")


def test_agent_calls_are_sorted_by_time_and_kept_verbatim(tmp_path: Path) -> None:
    calls = [
        {"timestamp": 30, "input": "third", "output": "", "session_id": "b"},
        {"timestamp": 10, "input": "first", "output": "x"},
        {"timestamp": 20, "input": "second", "output": "y", "session_id": "a"},
    ]
    write(tmp_path / "agent_x.jsonl.gz", calls)
    records = read("agent-trace", tmp_path)
    assert [r.context for r in records] == ["first", "second", "third"]
    assert [r.source_id for r in records] == ["000001", "000002", "000000"]
    assert all(r.verbatim for r in records)


def test_an_agent_trace_must_be_one(tmp_path: Path) -> None:
    write(tmp_path / "qasper.jsonl", [V1])
    with pytest.raises(ConfigurationError, match="qasper: not an agent trace"):
        read("agent-trace", tmp_path, "qasper")
    with pytest.raises(ConfigurationError, match="holds no agent trace"):
        read("agent-trace", tmp_path)
    write(tmp_path / "bad.jsonl", [{"timestamp": "noon", "input": "i", "output": "o"}])
    with pytest.raises(ConfigurationError, match=r"bad\[0\]: 'timestamp' must be a number"):
        read("agent-trace", tmp_path, "bad")


def test_readers_are_picked_by_content(tmp_path: Path) -> None:
    write(
        tmp_path / "musique_s.json.gz",
        [{"ctxs": [{"title": "T", "text": "one"}, {"title": "", "text": "two"}], "question": "q", "answers": ["a"]}],
    )
    write(
        tmp_path / "leval" / "tpo.jsonl.gz",
        [{"instructions": ["i1", "i2"], "outputs": ["o1", "o2"], "input": "doc", "source": "s", "evaluation": "exam"}],
    )
    meeting = {
        "topic_list": [],
        "general_query_list": [{"query": "sum up", "answer": "all"}],
        "specific_query_list": [{"query": "who", "answer": "Ann"}],
        "meeting_transcripts": [{"speaker": "Ann", "content": "hello"}, {"speaker": "Bo", "content": "bye"}],
    }
    write(tmp_path / "qmsum.jsonl", [meeting])
    write(tmp_path / "mine.jsonl", [{"context": "c", "question": "q", "answer": "a", "id": "k"}])
    write(tmp_path / "strange.jsonl", [{"foo": 1}])
    by_name = {name: read("jsonl", tmp_path, name) for name in ("musique_s", "tpo", "qmsum", "mine")}
    assert by_name["musique_s"][0].passages == ("T\none", "two")
    assert by_name["musique_s"][0].context == "T\none\n\ntwo"
    assert [(r.question, r.answers, r.other_questions) for r in by_name["tpo"]] == [
        ("i1", ("o1",), ("i2",)),
        ("i2", ("o2",), ("i1",)),
    ]
    assert [r.context for r in by_name["qmsum"]] == ["Ann: hello\nBo: bye"] * 2
    assert (by_name["mine"][0].source_id, by_name["mine"][0].answers) == ("k", ("a",))
    assert read("jsonl", tmp_path, "leval/tpo") == by_name["tpo"]
    with pytest.raises(ConfigurationError, match=r"no reader knows rows with the keys \['foo'\]"):
        read("jsonl", tmp_path, "strange")
    everything = read("jsonl", tmp_path)
    assert {r.dataset for r in everything} == {"musique_s", "tpo", "qmsum", "mine"}


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    write(tmp_path / "here.jsonl", [V1])
    with pytest.raises(ConfigurationError, match=r"has no dataset 'there'; it has: here"):
        read("jsonl", tmp_path, "there")
    with pytest.raises(ConfigurationError, match="pass --data-dir DIR"):
        read("jsonl", None)
    with pytest.raises(ConfigurationError, match="is not a directory"):
        read("jsonl", tmp_path / "nowhere")
    (tmp_path / "cut.jsonl.gz").write_bytes(gzip.compress(b'{"context": "x"}\n' * 100)[:-10])
    with pytest.raises(ConfigurationError, match=r"cut\.jsonl\.gz: cannot be read"):
        read("jsonl", tmp_path, "cut")
    write(tmp_path / "odd.jsonl", [{**V1, "context": 7}])
    with pytest.raises(ConfigurationError, match=r"odd\[0\]: 'context' must be text, not int"):
        read("jsonl", tmp_path, "odd")
    (tmp_path / "sub").mkdir()
    write(tmp_path / "sub" / "here.jsonl", [V1])
    with pytest.raises(ConfigurationError, match=r"ambiguous.*here, sub/here"):
        read("jsonl", tmp_path, "here")


@pytest.mark.parametrize("profile", ["jsonl", "agent-trace"])
def test_what_was_not_read_is_listed(tmp_path: Path, profile: str) -> None:
    call = {"timestamp": 1, "input": "one", "output": ""}
    write(tmp_path / "good.jsonl", [call])
    write(tmp_path / "strange.jsonl", [{"foo": 1}])
    (tmp_path / "bad.jsonl").write_text("{\n")
    (tmp_path / "empty.jsonl").write_text("")
    (tmp_path / "broken.zip").write_bytes(b"no archive")
    request = SourceRequest(data_dir=tmp_path)
    assert [r.dataset for r in SOURCES.get(profile)(request)] == ["good"]
    reasons = {Path(entry.file).name: entry.reason for entry in request.unread}
    assert sorted(reasons) == ["bad.jsonl", "broken.zip", "empty.jsonl", "strange.jsonl"]
    assert "keys foo" in reasons["strange.jsonl"]
    assert reasons["empty.jsonl"] == "no rows"
    assert "bad.jsonl:1" in reasons["bad.jsonl"]


def test_if_nothing_can_be_read_the_keys_are_named(tmp_path: Path) -> None:
    write(tmp_path / "strange.jsonl", [{"prompt": "x", "text": "y"}])
    with pytest.raises(ConfigurationError) as caught:
        read("jsonl", tmp_path)
    message = str(caught.value)
    assert "strange.jsonl: keys prompt, text" in message
    assert "plain: context" in message
    with pytest.raises(ConfigurationError, match=r"strange\.jsonl: keys prompt, text.*timestamp, input, output"):
        read("agent-trace", tmp_path)


def test_json_errors_name_file_and_line(tmp_path: Path) -> None:
    (tmp_path / "lines.jsonl").write_text('{"context": "a"}\n\n{"context": \n')
    with pytest.raises(ConfigurationError, match=r"lines\.jsonl:3: not JSON: .*column 12"):
        read("jsonl", tmp_path, "lines")
    (tmp_path / "list.json").write_text('[\n{"context": "a"},\n{"context" "b"}\n]')
    with pytest.raises(ConfigurationError, match=r"list\.json:3: not JSON: .*column 12"):
        read("jsonl", tmp_path, "list")
    (tmp_path / "bytes.jsonl").write_bytes(b'{"context": "a"}\n\xff\n')
    with pytest.raises(ConfigurationError, match=r"bytes\.jsonl:2: not UTF-8"):
        read("jsonl", tmp_path, "bytes")


def test_lone_surrogates_become_writable(tmp_path: Path) -> None:
    (tmp_path / "s.jsonl").write_text('{"context": "a \\ud800 b"}\n')
    assert read("jsonl", tmp_path, "s")[0].context == "a ? b"


def test_synthetic_documents_follow_seed_and_count() -> None:
    make = SOURCES.get("synthetic-v1")
    first = make(SourceRequest(("synthetic_short",), None, 3, seed=1))
    assert first == make(SourceRequest(("synthetic_short",), None, 3, seed=1))
    assert len({r.context for r in first}) == 3
    other = make(SourceRequest(("synthetic_short",), None, 3, seed=2))
    assert not {r.context for r in first} & {r.context for r in other}
    for record in first:
        assert record.context.count(record.answers[0]) == 1
        assert len(record.context.split()) >= 600


def test_every_profile_is_there() -> None:
    named = [
        "agent-trace",
        "answers",
        "fixture",
        "jsonl",
        "longbench-v1",
        "longbench-v2",
        "synthetic-v1",
    ]
    assert sorted(BUILT_IN) == named
    assert set(BUILT_IN) <= set(SOURCES.names())
