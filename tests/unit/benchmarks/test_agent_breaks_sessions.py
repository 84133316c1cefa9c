"""Agent sessions with planted breaks: recorded sessions in, whole sessions with one planted change each out."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from benchmarks.agent_breaks import changes
from benchmarks.agent_breaks.planted import EVERY_TURN, FACTS, KINDS, NO_BREAK, OTHER_TENANT, read_agent_breaks
from benchmarks.agent_breaks.recorded import TURNS, agent_sessions, opening_and_call
from benchmarks.agent_breaks.sessions import ReplaySession, sessions_of
from hypothesis import given
from hypothesis import strategies as st

from sembase.errors import ConfigurationError
from sembench.scoring import mark
from sembench.scoring.base import task_of
from sembench.workload.build import BuildCounts, iterate_items
from sembench.workload.seeded import Draws
from sembench.workload.sources import SourceRequest
from sembench.workload.transforms import TransformContext

SESSIONS = 14


def recorded(sessions: int = SESSIONS, calls: int = TURNS) -> list[dict[str, object]]:
    rows = []
    for session in range(sessions):
        prompt = f"<task>Repair part {session} of the parser.</task>"
        for call in range(calls):
            answer = f"THOUGHT: look at file {call}.\n\n```bash\ncat part{session}_{call}.py\n```\n"
            rows.append({"timestamp": 1_000_000 * (100 * session + 2 * call), "session_id": f"session{session:02d}"})
            rows[-1] |= {"input": prompt, "output": answer}
            lines = "\n".join(f"line {number} of part {session}.{call}" for number in range(12))
            prompt += f"\n\n<output>\n{lines}\n</output>"
    return rows


def built(tmp_path: Path, seed: int = 3, calls: int = TURNS) -> list[ReplaySession]:
    with gzip.open(tmp_path / "agent_x.jsonl.gz", "wt") as stream:
        stream.writelines(json.dumps(row) + "\n" for row in recorded(calls=calls))
    records = read_agent_breaks(SourceRequest((), tmp_path, seed=seed))
    return sessions_of(iterate_items(records, ("stream",), TransformContext((), seed=seed), BuildCounts()))


def test_a_session_is_the_messages_that_its_calls_added() -> None:
    rows = recorded(1, 2 * TURNS + 3)
    first, second = agent_sessions(rows, "x")
    assert (len(first.steps), first.first) == (TURNS, 0)
    assert (len(second.steps), second.first) == (2 * TURNS, TURNS)
    assert "\n\n".join(step.text for step in second.steps) == rows[2 * TURNS - 1]["input"]
    assert [step.answer for step in second.steps] == [row["output"] for row in rows[: 2 * TURNS]]
    assert {step.pause_s for step in second.steps} == {2.0}


@given(st.integers(0, 4_000), st.integers(0, 2))
def test_a_long_session_keeps_its_task_and_its_latest_steps(budget: int, window: int) -> None:
    session = list(agent_sessions(recorded(1, 3 * TURNS), "x"))[window]
    sizes = [len(step.text) + len(step.answer) for step in session.steps]
    needed = sum(sizes) if not session.first else sizes[0] + sum(sizes[session.first :])
    short = session.within(budget, len)
    assert (short is None) == (needed > budget)
    if short is None:
        return
    assert sum(len(step.text) + len(step.answer) for step in short.steps) <= budget
    assert short.steps[0] == session.steps[0]
    assert short.steps[1:] == session.steps[len(session.steps) - len(short.steps) + 1 :]
    dropped = len(session.steps) - len(short.steps)
    if dropped:
        used = sum(len(step.text) + len(step.answer) for step in short.steps)
        assert used + sizes[dropped] > budget


def test_calls_of_another_branch_are_left_out() -> None:
    rows = recorded(1)
    aside = {"timestamp": 1_500_000, "session_id": "session00", "input": "Name this session.", "output": "Parser"}
    (session,) = agent_sessions([*rows, aside], "x")
    assert all("Name this" not in step.text for step in session.steps)


@given(st.text(alphabet="ab`\n", max_size=12), st.text(alphabet="cd ", min_size=1, max_size=8))
def test_an_answer_is_its_opening_and_its_call(thought: str, command: str) -> None:
    answer = f"{thought}```bash\n{command}\n```\n"
    opening, call = opening_and_call(answer)
    assert answer.startswith(opening + call)
    if command.strip() and "```bash" not in thought:
        assert (opening, call) == (f"{thought}```bash\n", command)
    assert opening_and_call(thought.replace("`", "")) == ("", thought.replace("`", ""))


@pytest.mark.parametrize("seed", [1, 2, 3, 4, 5])
def test_a_session_grows_except_where_it_breaks(tmp_path: Path, seed: int) -> None:
    sessions = built(tmp_path, seed)
    assert {session.kind for session in sessions} == set(KINDS)
    for session in sessions:
        assert [turn.turn for turn in session.turns] == list(range(TURNS))
        grows = [
            later.prompt.startswith(earlier.prompt + earlier.answer)
            for earlier, later in zip(session.turns, session.turns[1:], strict=False)
        ]
        breaks_at = [turn.turn for turn in session.turns if turn.since_break == 0]
        assert [turn + 1 for turn, grew in enumerate(grows) if not grew] == breaks_at, session.kind
        if session.kind == NO_BREAK:
            assert not breaks_at
        elif session.kind == EVERY_TURN:
            assert breaks_at == list(range(breaks_at[0], TURNS))
        elif session.kind != OTHER_TENANT:
            assert len(breaks_at) == 1
            assert 2 <= breaks_at[0] <= TURNS - 3


def test_a_build_follows_its_seed(tmp_path: Path) -> None:
    assert built(tmp_path, 3) == built(tmp_path, 3)
    assert built(tmp_path, 3) != built(tmp_path, 4)


def test_tenants_share_nothing_but_the_control_has_another_ones_text(tmp_path: Path) -> None:
    sessions = built(tmp_path)
    assert len({session.tenant for session in sessions}) == len(sessions)
    at = next(place for place, session in enumerate(sessions) if session.kind == OTHER_TENANT)
    assert sessions[at].turns == sessions[at - 1].turns


def test_a_changed_fact_is_asked_for_and_the_old_one_is_gone(tmp_path: Path) -> None:
    found = {session.kind: session for session in built(tmp_path) if session.kind in FACTS}
    assert set(found) == set(FACTS)
    for session in found.values():
        (asked,) = [turn for turn in session.turns if turn.stale_answer is not None]
        assert asked.since_break == 0
        assert asked.stale_answer is not None
        assert asked.stale_answer[0] != asked.answer[0]
        assert asked.stale_answer not in asked.prompt
        assert asked.answer in asked.prompt
        before = session.turns[asked.turn - 1].prompt
        assert asked.stale_answer in before
        assert asked.answer not in before


def test_a_compacted_history_is_shorter_and_keeps_the_last_messages(tmp_path: Path) -> None:
    session = next(session for session in built(tmp_path, calls=3 * TURNS) if session.kind == "history_compacted")
    at = next(turn.turn for turn in session.turns if turn.since_break == 0)
    before, after = session.turns[at - 1].prompt, session.turns[at].prompt
    assert after.count("<|im_start|>") < before.count("<|im_start|>")
    last_kept = after.split("<|im_start|>user\n")[-2].partition("<|im_end|>")[0]
    assert "line 11" in last_kept
    assert last_kept in before


def test_a_file_that_is_read_again_moves_to_the_end(tmp_path: Path) -> None:
    session = next(session for session in built(tmp_path) if session.kind == "file_reread")
    at = next(turn.turn for turn in session.turns if turn.since_break == 0)
    before, after = session.turns[at - 1].prompt, session.turns[at].prompt
    assert "TODO: remove this line" not in before
    assert after.rindex("TODO: remove this line") > after.index("an older version of a file")


def test_a_short_replay_has_its_break_and_turns_around_it(tmp_path: Path) -> None:
    for session in built(tmp_path):
        short = session.around_break(4)
        assert len(short.turns) == 4
        if session.kind != NO_BREAK:
            assert [turn.since_break for turn in short.turns[:3]] == [None, None, 0]


def test_a_trace_without_long_sessions_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=f"over {TURNS} calls"):
        built(tmp_path, calls=TURNS - 1)


bodies = st.lists(st.text(alphabet="abc \n", max_size=20), min_size=3, max_size=8).map(
    lambda texts: {
        "messages": [{"role": "user", "content": f"x {text}\n\ny"} for text in texts],
        "tools": [{"name": f"tool{number}"} for number in range(len(texts))],
    }
)


@given(bodies, st.integers(0, 1_000))
def test_a_change_leaves_its_input_and_changes_one_part(body: changes.Body, seed: int) -> None:
    saved = json.dumps(body)
    below = Draws(seed).below
    tools = {
        "reorder": changes.reorder_tools(body, below),
        "remove": changes.remove_tool(body, below),
        "add": changes.add_tool(body, [*body["tools"], {"name": "new"}], below),
    }
    assert all(changed["messages"] == body["messages"] for changed in tools.values())
    assert tools["reorder"]["tools"] != body["tools"]
    by_name = sorted(tool["name"] for tool in tools["reorder"]["tools"])
    assert by_name == sorted(tool["name"] for tool in body["tools"])
    assert len(tools["remove"]["tools"]) == len(body["tools"]) - 1
    assert [tool for tool in tools["add"]["tools"] if tool["name"] != "new"] == body["tools"]
    edited = changes.edit_message(body, 1, below)
    assert [at for at in range(len(body["messages"])) if edited["messages"][at] != body["messages"][at]] == [1]
    assert changes.with_line(body, "a line")["messages"][1:] == body["messages"][1:]
    assert changes.compact_history(body, 2)["messages"][2:] == body["messages"][2:]
    assert json.dumps(body) == saved


def test_every_turn_names_the_score_of_its_answer(tmp_path: Path) -> None:
    with gzip.open(tmp_path / "agent_x.jsonl.gz", "wt") as stream:
        stream.writelines(json.dumps(row) + "\n" for row in recorded())
    turns = read_agent_breaks(SourceRequest((), tmp_path, seed=3))
    for turn in turns:
        task = task_of(turn.answers, turn.metadata, 0.6)
        asks = turn.metadata["stale_answer"] is not None
        assert task.score == ("digits" if asks else "command")
        assert mark(f"{turn.answers[0]}\n```\nand more", task).right is True
        assert mark(f" {turn.answers[0]} 1", task).right is asks, "a port is read as a number, a command as a whole"
    stale = [turn for turn in turns if turn.metadata["stale_answer"] is not None]
    assert stale
    assert all(
        mark(str(turn.metadata["stale_answer"]), task_of(turn.answers, turn.metadata, 0.6)).stale for turn in stale
    )
