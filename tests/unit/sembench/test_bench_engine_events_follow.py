"""A growing event file is read once and completely, however its writer cuts, moves or restarts it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sembench.engine_events import follow
from sembench.engine_events.follow import EventFollower
from semblend.contract import Declined, EventLine, encode_line
from semblend.outcome import EventLog


def line(number: int) -> bytes:
    return encode_line(EventLine(Declined(f"r{number}", "stale"), "vllm", number, 1.0)).encode() + b"\n"


def numbers(lines: list[EventLine]) -> list[int]:
    return [entry.sequence for entry in lines]


def append(path: Path, content: bytes) -> None:
    with path.open("ab") as stream:
        stream.write(content)


def test_no_file_yet_is_no_error(tmp_path: Path) -> None:
    follower = EventFollower(tmp_path / "events.jsonl")
    assert follower.read() == []
    append(tmp_path / "events.jsonl", line(0))
    assert numbers(follower.read()) == [0]
    assert follower.read() == []


@settings(max_examples=60, deadline=None)
@given(cuts=st.lists(st.integers(1, 400), max_size=12))
def test_every_event_comes_once_wherever_the_writes_are_cut(
    tmp_path_factory: pytest.TempPathFactory, cuts: list[int]
) -> None:
    path = tmp_path_factory.mktemp("follow") / "events.jsonl"
    content, follower, seen = b"".join(map(line, range(8))), EventFollower(path), []
    for cut in [*cuts, len(content)]:
        append(path, content[:cut])
        content = content[cut:]
        seen += numbers(follower.read())
    follower.close()
    assert seen == list(range(8))
    assert (follower.damaged, follower.missing, follower.restarts) == (0, 0, 0)


def test_a_half_line_waits_for_its_end(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    follower = EventFollower(path)
    append(path, line(0) + line(1)[:-20])
    assert numbers(follower.read()) == [0]
    append(path, line(1)[-20:])
    assert numbers(follower.read()) == [1]


def test_rotation_loses_nothing_between_two_looks(tmp_path: Path) -> None:
    """The writer's own rotation: a look now and then, and every event is seen once."""
    path, seen = tmp_path / "events.jsonl", []
    follower = EventFollower(path)
    with EventLog(path, "vllm", max_bytes=5 * len(line(10))) as log:
        for number in range(100):
            log.write(Declined(f"r{number}", "stale"))
            if number % 4 == 0:
                seen += numbers(follower.read())
    seen += numbers(follower.read())
    assert seen == list(range(100))
    assert follower.restarts > 10
    assert (follower.damaged, follower.missing) == (0, 0)


def test_two_rotations_between_two_looks_are_noticed(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    follower = EventFollower(path)
    with EventLog(path, "vllm", max_bytes=3 * len(line(10))) as log:
        for number in range(20):
            log.write(Declined(f"r{number}", "stale"))
            if number == 0:
                follower.read()
        rest = numbers(follower.read())
    assert rest[-1] == 19
    assert follower.missing == 19 - len(rest)
    assert follower.missing > 0


def test_the_end_of_the_file_that_moved_away_is_read(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    follower = EventFollower(path)
    append(path, line(0))
    follower.read()
    append(path, line(1))
    path.rename(tmp_path / "events.jsonl.1")
    assert numbers(follower.read()) == [1]
    append(tmp_path / "events.jsonl.1", line(2))
    append(path, line(3))
    assert numbers(follower.read()) == [2, 3]


def test_what_is_written_just_before_the_file_moves_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The writer writes and rotates after the follower saw the end of the file and before it looks at the name."""
    path = tmp_path / "events.jsonl"
    follower = EventFollower(path)
    append(path, line(0))
    look = EventFollower._has_moved

    def rotate_first(self: EventFollower) -> bool:
        monkeypatch.setattr(EventFollower, "_has_moved", look)
        append(path, line(1))
        path.rename(tmp_path / "events.jsonl.1")
        append(path, line(2))
        return look(self)

    monkeypatch.setattr(EventFollower, "_has_moved", rotate_first)
    assert numbers(follower.read()) == [0, 1, 2]


def test_a_truncated_file_is_read_from_its_start(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    follower = EventFollower(path)
    append(path, line(0) + line(1) + b'{"half')
    assert numbers(follower.read()) == [0, 1]
    path.write_bytes(line(0))
    assert numbers(follower.read()) == [0]
    assert (follower.restarts, follower.damaged) == (1, 1)


def test_damage_is_counted_and_stops_nothing(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_bytes(
        line(0) + b"\xff\xfe not json\n\n" + b'{"contract": "other.v9"}\n' + b"[" * 50_000 + b"\n" + line(1)
    )
    follower = EventFollower(path)
    assert numbers(follower.read()) == [0, 1]
    assert follower.damaged == 3


def test_an_endless_line_is_thrown_away_and_counted_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "MAX_LINE_BYTES", 1000)
    monkeypatch.setattr(follow, "_CHUNK_BYTES", 300)
    path = tmp_path / "events.jsonl"
    follower = EventFollower(path)
    append(path, line(0) + b"x" * 5000)
    assert numbers(follower.read()) == [0]
    append(path, b"x" * 5000 + b"\n" + line(1))
    assert numbers(follower.read()) == [1]
    assert follower.damaged == 1


@settings(max_examples=60, deadline=None)
@given(content=st.binary(max_size=600), cut=st.integers(0, 600))
def test_any_bytes_are_survived(tmp_path_factory: pytest.TempPathFactory, content: bytes, cut: int) -> None:
    path = tmp_path_factory.mktemp("follow") / "events.jsonl"
    follower = EventFollower(path)
    append(path, content[:cut])
    follower.read()
    append(path, content[cut:] + b"\n" + line(7))
    assert numbers(follower.read()) == [7]
    follower.close()
