"""``--output`` is looked at before the work: it overwrites no input, and messages name the option and the path."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from sembase.files import replace_atomically
from sembench.cli.main import main

ROW = {"context": "A paragraph about ferries. " * 60, "question": "Why?", "id": "k"}


def build(*arguments: str | Path) -> int:
    return main(["build", "--profile", "jsonl", *map(str, arguments)])


def test_a_run_does_not_overwrite_its_manifest(manifest: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = manifest.read_bytes()
    link = manifest.with_name("link.jsonl")
    link.symlink_to(manifest)
    for output in (manifest, link, manifest.parent / "." / manifest.name):
        assert main(["run-offline", "--manifest", str(manifest), "--output", str(output), "--max-items", "1"]) == 2
        assert f"--output {output}: is the file given as --manifest" in capsys.readouterr().err
    assert manifest.read_bytes() == before
    rows = manifest.rename(manifest.with_name("x.json.partial.jsonl"))  # where a run to x.json would keep its rows
    assert main(["run-offline", "--manifest", str(rows), "--output", str(rows.with_name("x.json"))]) == 2
    assert rows.read_bytes() == before


def test_a_build_does_not_overwrite_its_source(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "mine.jsonl"
    source.write_text(json.dumps(ROW) + "\n")
    before = source.read_bytes()
    options = ("--data-dir", tmp_path, "--transforms", "exact_repeat")
    assert build(*options, "--output", source) == 2
    assert f"--output {source}: is a source file in --data-dir" in capsys.readouterr().err
    assert source.read_bytes() == before
    # A manifest next to its sources is not a source: building it again replaces it.
    assert build(*options, "--output", tmp_path / "m.jsonl") == 0
    assert build(*options, "--output", tmp_path / "m.jsonl") == 0


def test_an_output_that_cannot_be_written_stops_before_the_work(
    manifest: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sembench.cli.run_offline.run_offline", lambda _: pytest.fail("the work was done"))
    run = ["run-offline", "--manifest", str(manifest), "--output"]
    assert main([*run, str(tmp_path)]) == 2
    assert f"--output {tmp_path}: is a directory" in capsys.readouterr().err
    (tmp_path / "file").write_text("")
    below = tmp_path / "file" / "sub" / "r.json"
    assert main([*run, str(below)]) == 2
    assert f"--output {below}: {tmp_path / 'file'} is not a directory" in capsys.readouterr().err
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert main([*run, str(tmp_path / "new" / "r.json")]) == 3
    assert f"--output {tmp_path / 'new' / 'r.json'}: {tmp_path} cannot be written to" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()
    assert build("--data-dir", tmp_path, "--output", tmp_path) == 2


def test_no_message_names_a_temporary_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(source: str, target: Path) -> None:
        raise PermissionError(13, "Permission denied", source, None, str(target))

    monkeypatch.setattr(os, "replace", refuse)
    target = tmp_path / "r.json"
    with pytest.raises(OSError, match=r"Permission denied") as caught, replace_atomically(target) as stream:
        stream.write(b"x")
    assert str(caught.value) == f"[Errno 13] Permission denied: '{target}'"
    assert list(tmp_path.iterdir()) == []
