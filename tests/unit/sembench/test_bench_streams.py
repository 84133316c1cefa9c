"""A closed pipe ends no run and does not change the exit code of work that was done."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sembench.cli.main import main
from sembench.replay import progress

SRC = Path(__file__).parents[3] / "src"


class Closed:
    def write(self, text: str) -> int:
        raise BrokenPipeError(32, "Broken pipe")

    def flush(self) -> None:
        raise BrokenPipeError(32, "Broken pipe")

    def isatty(self) -> bool:
        return False

    def fileno(self) -> int:
        raise OSError("no file")


def test_progress_without_a_reader_stops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(0, 1000, 9))
    monkeypatch.setattr("time.monotonic", lambda: float(next(clock)))
    monkeypatch.setattr(sys, "stderr", Closed())
    assert list(progress.watch("abcd", 4, "replay")) == list("abcd")


def run_with_closed(stream: str, *arguments: str) -> tuple[int, str]:
    """Runs sembench with ``stream`` a pipe whose reader has gone, and returns the exit code and the other stream."""
    read, write = os.pipe()
    os.close(read)
    other = "stderr" if stream == "stdout" else "stdout"
    environment = {**os.environ, "PYTHONPATH": str(SRC)}
    command = [sys.executable, "-m", "sembench", *arguments]
    try:
        pipes = {stream: write, other: subprocess.PIPE}
        done = subprocess.run(command, check=False, text=True, env=environment, **pipes)  # type: ignore[call-overload]
    finally:
        os.close(write)
    return done.returncode, done.stderr if stream == "stdout" else done.stdout


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_closed_pipe_after_the_work_is_no_failure(manifest: Path, tmp_path: Path, stream: str) -> None:
    output = tmp_path / "r.json"
    code, other = run_with_closed(
        stream, "run-offline", "--manifest", str(manifest), "--output", str(output), "--max-items", "1"
    )
    assert code == 0
    assert output.exists()
    assert "Broken pipe" not in other
    assert "Traceback" not in other


def test_a_verdict_without_a_reader_keeps_its_exit_code(manifest: Path, tmp_path: Path) -> None:
    output = tmp_path / "r.json"
    assert main(["run-offline", "--manifest", str(manifest), "--output", str(output), "--max-items", "1"]) == 0
    asked = ["assert-result-gates", "--result", str(output), "--min-quality-pass-rate", "0.5"]
    assert run_with_closed("stdout", *asked)[0] == 1


def test_an_interrupt_is_130_and_the_help_says_so(
    manifest: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("sembench.cli.run_offline.run_offline", interrupt)
    assert main(["run-offline", "--manifest", str(manifest), "--output", str(tmp_path / "r.json")]) == 130
    capsys.readouterr()
    with pytest.raises(SystemExit):
        main(["run-offline", "--help"])
    assert "130 interrupted" in " ".join(capsys.readouterr().out.split())
