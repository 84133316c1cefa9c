"""Every step of the walk with its real commands, against a stand-in for the engine: files, figures, resumption."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from benchmarks.walk import __main__ as walk
from benchmarks.walk.recording import record
from benchmarks.walk.traffic import Chat
from tests.fakes import blending_server, openai_server
from tests.fakes.model_folder import write_model_folder
from tests.unit.benchmarks.test_walk import small_traffic

from sembase.latency import CALIBRATION_SCHEMA, LatencyModel

MS_PER_TOKEN = 0.05


def test_the_walk_ends_with_predicted_beside_measured_and_continues_where_it_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    started: list[bool] = []

    @contextmanager
    def serving(flags: tuple[str, ...]) -> Iterator[Any]:
        started.append(bool(flags))
        events = ("--events", tmp_path / "walk" / "events.jsonl") if flags else ()
        with blending_server.running("--ms-per-token", str(MS_PER_TOKEN), *events) as url:
            yield SimpleNamespace(base_url=url, startup_s=0.0)

    def calibrate(self: walk.Walk, _: Any) -> None:
        model = LatencyModel(base_ms=1.0, ms_per_uncached_token=MS_PER_TOKEN, source="given")
        self.calibration.parent.mkdir(parents=True)
        self.calibration.write_text(json.dumps({"schema": CALIBRATION_SCHEMA, "model": model.as_record()}))

    def record_chats(traffic: list[Chat], _: str, folder: Path, **more: Any) -> None:
        """From a server that answers any body; the blending one serves the requests of a live run only."""
        with openai_server.running() as upstream:
            record(traffic, upstream, folder, **more)

    monkeypatch.setattr(walk, "_serving", serving)
    monkeypatch.setattr(walk, "record", record_chats)
    monkeypatch.setattr(walk, "EXACT_RESET", walk.FULL_RESET)  # the stand-in for the stock server has donors too
    monkeypatch.setattr(walk, "chats", lambda *_: small_traffic())
    monkeypatch.setattr(walk, "TOKENIZER", write_model_folder(tmp_path / "model") / "tokenizer.json")
    monkeypatch.setattr(walk.Walk, "calibrate", calibrate)
    arguments = argparse.Namespace(folder=tmp_path / "walk", texts=tmp_path, chats=12, seed=0, fresh=False)
    walk._walk(arguments, {"chats": 12})
    shown = capsys.readouterr().out
    assert started == [False, True, False]
    assert "reuse beyond it" in shown
    assert f"Saved on the same {len(small_traffic())} requests" in shown
    figures = json.loads((tmp_path / "walk" / "walk.json").read_text())
    prefix, reuse, both = figures["savings"]
    assert both["predicted_s"] == pytest.approx(prefix["predicted_s"] + reuse["predicted_s"])
    assert {name.split()[0] for name in figures["seconds"]} >= set("1234567")
    for page in ("estimate.html", "report.html"):
        assert "<html" in (tmp_path / "walk" / page).read_text()
    walk._walk(arguments, {"chats": 12})
    assert started == [False, True, False], "nothing is repeated"
    assert json.loads((tmp_path / "walk" / "walk.json").read_text())["savings"] == figures["savings"]
