"""How many files a reader opens to follow one manifest through a live run: a limit, so that it does not grow again."""

from __future__ import annotations

from scripts.count_live_files import files_of_a_live_run

MAX_REPLAY_FILES = 25  # three of them mark answers, one has certificates, one says what is awaited


def test_a_manifest_passes_through_few_files() -> None:
    stages = files_of_a_live_run()
    replay = sorted(name for name, stage in stages.items() if stage == "replay")
    assert "sembench/live/session.py" in replay
    assert len(replay) <= MAX_REPLAY_FILES, replay
    assert stages["sembench/result.py"] == "result"
