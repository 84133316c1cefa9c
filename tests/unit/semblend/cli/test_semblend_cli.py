"""``semblend explain | guard``: files in and out, errors as one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from semblend.cli.main import main
from semblend.contract import Declined, Event, EventLine, GuardChecked, Materialized, PlanShape, encode_line
from semblend.guard.tracker import GuardLimits, Tracker
from semblend.guard.verdicts import decode_tracker, write_tracker


def test_explain_names_the_guard(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "events.jsonl"
    events: list[Event] = [
        Declined("r1", "guard_off:reorder", "off: mean KL 0.3"),
        Materialized("r2", ("d",), 900, 42, 5),
        GuardChecked("r2", "m", "edit", 0.0123),
    ]
    lines = [encode_line(EventLine(event, "vllm", number, 0.0)) for number, event in enumerate(events)]
    path.write_text("\n".join([*lines, '{"torn']))
    assert main(["explain", "r1", "--events", str(path)]) == 0
    assert "the guard turned off the class 'reorder' (off: mean KL 0.3)" in capsys.readouterr().out
    assert main(["explain", "r2", "--events", str(path)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "blended: 900 tokens reused, 42 computed",
        "checked by the guard: KL at least 0.0123 (edit)",
    ]
    assert main(["explain", "r3", "--events", str(path)]) == 1


def test_explain_takes_the_id_the_client_was_given(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """vLLM appends the choice and eight digits of its own to it."""
    path = tmp_path / "events.jsonl"
    ids = ("cmpl-7f-0-99aabbcc", "chatcmpl-7f-99aabbcc", "cmpl-7f-more-0-99aabbcc", "cmpl-7f0-0-99aabbcc")
    events: list[Event] = [Materialized(id_, ("d",), 100 + n, 0, 5) for n, id_ in enumerate(ids)]
    path.write_text("".join(f"{encode_line(EventLine(e, 'vllm', n, 0.0))}\n" for n, e in enumerate(events)))
    for asked, tokens in (("cmpl-7f", 100), ("chatcmpl-7f", 101), ("cmpl-7f-more", 102), ("cmpl-7f-0-99aabbcc", 100)):
        assert main(["explain", asked, "--events", str(path)]) == 0
        assert capsys.readouterr().out == f"blended: {tokens} tokens reused, 0 computed\n"
    assert main(["explain", "7f0", "--events", str(path)]) == 0, "the id of a router, of which vLLM made its own"
    assert capsys.readouterr().out == "blended: 103 tokens reused, 0 computed\n"
    for asked in ("f0", "7", ""):
        assert main(["explain", asked, "--events", str(path)]) == 1


def test_guard_shows_and_resets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, tracker = tmp_path / "guard.json", Tracker(GuardLimits())
    for _ in range(20):
        tracker.observe("m", PlanShape.EDIT, 0.9)
    tracker.observe("m", PlanShape.REORDER, 0.0)
    write_tracker(path, tracker)
    assert main(["guard", str(path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("m edit: off")
    assert lines[1].startswith("m reorder: on")
    assert main(["guard", str(path), "--reset", "m", "nothing"]) == 2
    assert "known: m edit, m reorder" in capsys.readouterr().err
    assert main(["guard", str(path), "--reset", "m", "edit"]) == 0
    left = decode_tracker(path.read_text())
    assert list(left.tests) == [("m", PlanShape.REORDER)]
    assert left.begun == 2
