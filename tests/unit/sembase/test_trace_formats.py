"""The loaders of other people's traces, on small files written here."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sembase.errors import ConfigurationError, ContractError
from sembase.labels import LABELS
from sembase.trace.columns import BlockTrace
from sembase.trace.formats import FORMATS
from sembase.trace.formats.lifted_ids import lift_ids
from sembase.trace.load import load_trace, read_records


def write_lines(path: Path, *values: Any) -> Path:
    path.write_text("".join(json.dumps(value, separators=(",", ":")) + "\n" for value in values))
    return path


def mooncake(timestamp: int, tokens: int, *ids: int) -> dict[str, Any]:
    return {"timestamp": timestamp, "input_length": tokens, "output_length": 9, "hash_ids": list(ids)}


def rows(trace: BlockTrace) -> list[list[int]]:
    return [trace.nodes[a:b].tolist() for a, b in zip(trace.offsets, trace.offsets[1:], strict=False)]


def test_mooncake_keeps_order_tails_and_times(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "m.jsonl", mooncake(0, 1100, 7, 8, 9), mooncake(30, 1024, 7, 8), mooncake(30, 5, 4))
    trace = load_trace(path)
    trace.check()
    assert rows(trace) == [[0, 1, 2], [0, 1], [3]]
    assert trace.node_tokens.tolist() == [512, 512, 76, 5]
    assert trace.arrival_ms.tolist() == [0, 30, 30]
    assert trace.block_tokens == 512
    assert trace.output_tokens.tolist() == [9, 9, 9]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (mooncake(0, 600, 1), r"m\.jsonl line 2: 600 tokens do not fit 1 blocks of 512"),
        (mooncake(0, 512, 1, 2), "512 tokens do not fit 2 blocks"),
        (mooncake(0, 512), "at least one whole number"),
        (mooncake(0, 512, -1), "at least one whole number"),
        ({**mooncake(0, 512, 1), "x": 1}, r"m\.jsonl line 2: a Mooncake request has exactly"),
        (mooncake(-1, 512, 1), "timestamp must be a number"),
        ({**mooncake(0, 512, 1), "output_length": 1.5}, "must be whole numbers"),
    ],
)
def test_mooncake_lines_that_are_none(tmp_path: Path, line: object, message: str) -> None:
    path = write_lines(tmp_path / "m.jsonl", mooncake(0, 512, 1), line)
    with pytest.raises(ContractError, match=message):
        load_trace(path)


def claude_request(at_s: float, ids: list[int], **more: Any) -> dict[str, Any]:
    return {"t": at_s, "type": "n", "in": 64 * len(ids), "out": 130, "hash_ids": ids, "input_types": ["text"], **more}


def claude_session(*requests: dict[str, Any], system_tokens: int = 64) -> dict[str, Any]:
    return {"id": "x", "block_size": 64, "tool_tokens": 64, "system_tokens": system_tokens, "requests": list(requests)}


def test_claude_code_ids_mean_something_in_their_session_only(tmp_path: Path) -> None:
    session = claude_session(claude_request(0, [1, 2, 3]), claude_request(9, [1, 2, 3, 4]))
    trace = load_trace(write_lines(tmp_path / "c.jsonl", session, session))
    assert rows(trace) == [[0, 1, 2], [0, 1, 2, 3], [4, 5, 6], [4, 5, 6, 7]]
    assert trace.session.tolist() == [0, 0, 1, 1]
    assert trace.tenant.tolist() == [0, 0, 1, 1]
    assert trace.arrival_ms.tolist() == [0, 9_000, 9_000, 18_000]  # the second begins when the first has ended


def test_claude_code_subagents_are_placed_by_their_times(tmp_path: Path) -> None:
    agent = {"t": 2.0, "type": "subagent", "tool_tokens": 0, "system_tokens": 0, "requests": [
        claude_request(0.0, [50, 51]), claude_request(5.0, [50, 51, 52], ttft=0.25)]}  # fmt: skip
    session = claude_session(claude_request(0, [1, 2]), agent, claude_request(4, [1, 2, 3]))
    trace = load_trace(write_lines(tmp_path / "c.jsonl", session))
    assert trace.arrival_ms.tolist() == [0, 2_000, 4_000, 7_000]
    assert rows(trace) == [[0, 1], [2, 3], [0, 1, 4], [2, 3, 5]]
    assert trace.observed_ttft_ms.tolist()[3] == 250.0
    assert np.isnan(trace.observed_ttft_ms[:3]).all()


def test_claude_code_labels_follow_from_what_each_turn_added(tmp_path: Path) -> None:
    session = claude_session(
        claude_request(0, [1, 2, 3]),
        claude_request(1, list(range(1, 9)), input_types=["tool_result"]),  # 130 answered tokens: three blocks
    )
    trace = load_trace(write_lines(tmp_path / "c.jsonl", session))
    labels = [LABELS[label] for label in trace.node_label]
    assert labels == ["system", "system", "user", "assistant", "assistant", "assistant", "tool_output", "tool_output"]


def test_claude_code_sessions_side_by_side(tmp_path: Path) -> None:
    session = claude_session(claude_request(0, [1]), claude_request(10, [1, 2]))
    path = write_lines(tmp_path / "c.jsonl", session, session, session)
    trace = load_trace(path, options={"sessions_at_once": 2})
    assert trace.session.tolist() == [0, 1, 0, 1, 2, 2]
    assert trace.arrival_ms.tolist() == [0, 0, 10_000, 10_000, 10_000, 20_000]
    trace.check()
    assert load_trace(path, options={"max_sessions": 2}).session.tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize(
    ("session", "message"),
    [
        ({"id": "x", "block_size": 0, "requests": []}, r"c\.jsonl line 1: block_size must be"),
        (claude_session(), "the session has no requests"),
        (claude_session({"t": 0, "type": "n"}), "has no hash_ids"),
        (claude_session(claude_request(-1, [1])), "'t' must be a number"),
        (claude_session(claude_request(0, [1, -2])), "hash_ids must be whole numbers"),
        (
            claude_session(claude_request(0, [1]), claude_request(1, [2, 1])),
            "not chained.*request 0, block 0.*request 1, block 1",
        ),
    ],
)
def test_claude_code_sessions_that_are_none(tmp_path: Path, session: object, message: str) -> None:
    with pytest.raises(ContractError, match=message):
        load_trace(write_lines(tmp_path / "c.jsonl", session), "claude_code")


@pytest.mark.parametrize("spaces", [(",", ":"), (", ", ": "), (" , ", ":")])
def test_lifting_ids_out_of_json_loses_nothing(spaces: tuple[str, str]) -> None:
    arrays = [[1, 22, 333], [], [10**17], list(range(12))]
    items = [{"hash_ids": array, "n": '"hash_ids": [5]'} for array in arrays * 4]
    value = {"a": items, "b": [1, {"c": "ü]"}]}
    line = json.dumps(value, separators=spaces).encode()
    rest, ids, bounds = lift_ids(line, "here")
    lifted = json.loads(rest)
    for number, (item, original) in enumerate(zip(lifted["a"], items, strict=True)):
        assert item["hash_ids"] == [number]
        assert ids[bounds[number, 0] : bounds[number, 1]].tolist() == original["hash_ids"]
        assert item["n"] == original["n"]
    assert lifted["b"] == value["b"]


@pytest.mark.parametrize("array", ["[1,]", "[,1]", "[1 2]", "[1.5]", '["1"]', "[" + "9" * 19 + "]", "7", "[[1]]"])
def test_arrays_that_hold_no_ids_are_refused(array: str) -> None:
    with pytest.raises(ContractError, match="here: hash_ids must be whole numbers"):
        lift_ids(f'{{"hash_ids":{array}}}'.encode(), "here")


AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n"


def azure_file(path: Path, requests: int = 2_000) -> Path:
    source = np.random.default_rng(5)
    lengths = source.integers(20, 4_000, requests)
    answers = source.integers(1, 200, requests)
    stamps = [f"2023-11-16 18:{second // 60:02d}:{second % 60:02d}.5000000" for second in range(requests)]
    body = "".join(f"{s},{a},{b}\n" for s, a, b in zip(stamps, lengths, answers, strict=True))
    path.write_text(AZURE + body)
    return path


@pytest.mark.parametrize("share", [0.0, 0.25, 0.45])
def test_azure_content_has_the_share_asked_for_and_the_lengths_given(tmp_path: Path, share: float) -> None:
    path = azure_file(tmp_path / "a.csv")
    trace = load_trace(path, options={"prefix_share": share, "seed": 3})
    trace.check()
    prompt_tokens = np.add.reduceat(trace.node_tokens[trace.nodes], trace.offsets[:-1])
    given = [int(line.split(",")[1]) for line in path.read_text().splitlines()[1:]]
    assert prompt_tokens.tolist() == given
    assert 1 - trace.node_tokens.sum() / prompt_tokens.sum() == pytest.approx(share, abs=0.01)


def test_azure_draws_depend_on_the_seed_alone(tmp_path: Path) -> None:
    path = azure_file(tmp_path / "a.csv")
    first, again, other = (load_trace(path, options={"seed": seed}) for seed in (1, 1, 2))
    assert np.array_equal(first.nodes, again.nodes)
    assert not np.array_equal(first.nodes, other.nodes)
    assert first.name == "a_share0.4_seed1"


def test_azure_says_what_share_the_lengths_allow(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"allow a prefix share of 0\.\d+, not 0\.99"):
        load_trace(azure_file(tmp_path / "a.csv"), options={"prefix_share": 0.99})


@pytest.mark.parametrize(
    "row", ["yesterday,1,2", "2023-11-16 18:17:03,0,2", "2023-11-16 18:17:03,5", "2023-11-16 18:17:03,5,6,7"]
)
def test_azure_rows_that_are_none(tmp_path: Path, row: str) -> None:
    (tmp_path / "a.csv").write_text(AZURE + "2023-11-16 18:17:03.5,5,6\n" + row + "\n")
    with pytest.raises(ContractError, match=r"a\.csv line 3"):
        load_trace(tmp_path / "a.csv")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"share": 0.3}, "trace format 'azure': 'share' is not an option; the nearest is 'prefix_share'"),
        ({"seed": "x"}, 'seed="x": expected a whole number'),
        ({"seed": True}, "seed=true: expected a whole number"),
        ({"prefix_share": 1.5}, "prefix_share=1.5: expected a number between 0 and 1"),
    ],
)
def test_options_that_do_not_fit(tmp_path: Path, options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        load_trace(azure_file(tmp_path / "a.csv", 10), options=options)


def call(at_us: int, prompt: str, **more: Any) -> dict[str, Any]:
    return {"timestamp": at_us, "input": prompt, "output": "two words", **more}


def test_agent_texts_become_chained_blocks_in_order_of_time(tmp_path: Path) -> None:
    words = " ".join("abcdefghij")  # ten tokens
    path = write_lines(tmp_path / "t.jsonl", call(9_000, words + " k", session_id="s"), call(2_000, words))
    trace = load_trace(path, options={"block_tokens": 4})
    assert rows(trace) == [[0, 1, 2], [0, 1, 3]]
    assert trace.node_tokens.tolist() == [4, 4, 2, 3]
    assert trace.arrival_ms.tolist() == [0, 7]
    assert trace.session.tolist() == [-1, 0]
    assert trace.output_tokens.tolist() == [2, 2]
    assert rows(load_trace(path, options={"block_tokens": 4, "tail": "drop"})) == [[0, 1], [0, 1]]


def test_white_space_and_case_make_other_tokens(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "t.jsonl", *(call(n, text) for n, text in enumerate(["a b", "a  b", "A b", "a b"])))
    assert rows(load_trace(path)) == [[0], [1], [2], [0]]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ({"timestamp": 1}, "has timestamp and input"),
        (call(1, "x", role="user"), "has timestamp and input"),
        ({**call(1, "x"), "input": 3}, "must be text"),
        ({**call(1, "x"), "timestamp": "1"}, "microseconds"),
    ],
)
def test_agent_calls_that_are_none(tmp_path: Path, line: object, message: str) -> None:
    path = write_lines(tmp_path / "t.jsonl", call(0, "a"), line)
    with pytest.raises(ContractError, match=rf"t\.jsonl line 2.*{message}"):
        load_trace(path, "agent_text")


def test_only_record_formats_give_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without = replace(FORMATS.get("azure"), records=None)
    monkeypatch.setattr("sembase.trace.load.FORMATS", {"azure": without})
    with pytest.raises(ConfigurationError, match="'azure' has block ids, not trace records"):
        list(read_records(azure_file(tmp_path / "a.csv", 10), "azure"))
