from __future__ import annotations

import threading
from pathlib import Path

from semblend.contract import Declined, decode_line
from semblend.outcome import EventLog


def test_what_is_written_reads_back_in_order(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "events.jsonl"
    with EventLog(path, "vllm", clock_ms=lambda: 5.0) as log:

        def write_many() -> None:
            for _ in range(50):
                log.write(Declined("r", "stale"))

        threads = [threading.Thread(target=write_many) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    lines = [decode_line(text) for text in path.read_text().splitlines()]
    assert [line.sequence for line in lines] == list(range(200))
    assert {line.engine for line in lines} == {"vllm"}
    assert log.lost == 0


def test_a_file_that_cannot_be_written_is_counted_not_raised(tmp_path: Path) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("")
    log = EventLog(blocker / "events.jsonl", "vllm")
    log.write(Declined("r", "stale"))
    log.write(Declined("r", "stale"))
    assert log.lost == 2


def test_the_file_is_bounded(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    with EventLog(path, "vllm", max_bytes=2000) as log:
        for i in range(100):
            log.write(Declined(f"r{i}", "stale"))
    assert path.stat().st_size <= 2000
    older = path.with_name("events.jsonl.1")
    assert older.stat().st_size <= 2000
    sequences = [decode_line(text).sequence for file in (older, path) for text in file.read_text().splitlines()]
    assert sequences == list(range(sequences[0], 100))


def test_a_log_continues_where_an_earlier_process_stopped(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    for _ in range(2):
        with EventLog(path, "vllm") as log:
            log.write(Declined("r", "stale"))
    assert len(path.read_text().splitlines()) == 2
