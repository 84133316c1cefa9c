"""``semblend calibrate | explain | guard``: files in and out, a scripted engine, errors as one line."""

from __future__ import annotations

import json
import math
import socket
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sembase.errors import ConfigurationError
from semblend.calibrate.engine import RefusedError
from semblend.calibrate.measure import measure, tokens_per_word
from semblend.calibrate.observations import Observation, encode_observation
from semblend.calibrate.prompts import PromptWords, items_of, prompt_words
from semblend.cli.main import main
from semblend.contract import Declined, Event, EventLine, GuardChecked, Materialized, PlanShape, encode_line
from semblend.guard.tracker import GuardLimits, Tracker
from semblend.guard.verdicts import decode_tracker, write_tracker
from semblend.integration.vllm.options import parse_options
from semblend.plan.deviation_curve import DeviationCurve, Provenance
from semblend.plan.prediction import decode_prediction

TEXT = " ".join(f"word{n}" for n in range(120 * 25 * 3))
LENGTHS = PromptWords(200, 300, 400)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text('{"model_type": "llama", "num_hidden_layers": 4}')
    return tmp_path


def engine(body: bytes) -> bytes:
    """Drift falls with the share; the risk is that of a class made of 0.5."""
    asked = json.loads(body)
    own = asked["kv_transfer_params"]["semblend"]
    is_blended = own.get("reuse") is not False
    drift = 0.3 * math.exp(-5 * own.get("share", 0.0)) if is_blended else 0.0
    shape = "composition" if "colleague" in asked["prompt"] else "edit"
    provenance: dict[str, Any] = {"outcome": "cold_fallback"}
    if is_blended:
        share = own.get("share", 0.0)
        provenance = {
            "outcome": "backend_materialized_reuse",
            "class": shape,
            "context_risk": 0.5,
            "compute_share": share,
            "selected_by": "question" if share else None,
        }
    tops = {"token_id:1": math.log(0.9 - drift), "token_id:2": math.log(0.1 + drift)}
    record = {
        "model": "m",
        "choices": [{"logprobs": {"top_logprobs": [tops]}}],
        "usage": {"prompt_tokens": 2 * len(asked["prompt"].split())},
        "kv_transfer_params": {"semblend": provenance},
    }
    return json.dumps(record).encode()


def test_items_share_no_text_and_say_how_much_is_missing() -> None:
    items = items_of(TEXT, 4, LENGTHS)
    assert [item.wanted for item in items[:4]] == list(PlanShape)
    words = [{word for prompt in (*item.donors, item.recipient) for word in prompt.split()} for item in items]
    assert len(set.intersection(*words)) < 40, "the frame and the question"
    assert len({word for each in words for word in each if word.startswith("word")}) == sum(
        sum(word.startswith("word") for word in each) for each in words
    )
    assert [len(item.donors) for item in items if item.wanted is PlanShape.COMPOSITION] == [2, 5, 5, 2]
    with pytest.raises(ConfigurationError, match="the texts have 9000 words, but 9 items per class need") as few:
        items_of(TEXT, 9, LENGTHS)
    need = int(str(few.value).partition("need ")[2].partition(":")[0])
    items_of(" ".join(f"word{n}" for n in range(need)), 9, LENGTHS)
    with pytest.raises(ConfigurationError):
        items_of(" ".join(f"word{n}" for n in range(need - 1)), 9, LENGTHS)


def test_prompts_have_the_length_asked_for_and_are_as_short_where_the_context_is() -> None:
    lengths = prompt_words(4_096, 2.0)
    assert lengths.short < lengths.medium < lengths.long < 2_048
    assert [lengths.of(number) for number in range(5)] == [
        *(lengths.short, lengths.medium, lengths.short, lengths.long, lengths.short)
    ]
    assert max(len(item.recipient.split()) for item in items_of(TEXT * 9, 4, lengths)) == pytest.approx(2_048, rel=0.01)
    narrow = prompt_words(700, 2.0)
    assert narrow.short == narrow.medium == narrow.long < 350


def test_the_server_tells_how_many_tokens_a_word_has() -> None:
    assert tokens_per_word(engine, "m", TEXT) == 2.0
    assert tokens_per_word(engine, "m", "few words") == 2.0


@pytest.mark.parametrize("reply", [b"{}", b"[]", b'{"usage": null}', b"<html>"])
def test_a_server_that_does_not_tell_gets_the_usual_number(reply: bytes) -> None:
    assert tokens_per_word(lambda _: reply, "m", TEXT) == 1.5


def test_the_cold_question_comes_last_and_under_a_salt_of_its_own() -> None:
    asked: list[dict[str, Any]] = []

    def ask(body: bytes) -> bytes:
        asked.append(json.loads(body))
        return engine(body)

    found = measure(ask, "m", items_of(TEXT, 1, LENGTHS)[:1])
    hints = [each["kv_transfer_params"]["semblend"] for each in asked]
    assert hints[0] == {"reuse": False, "capture": True}
    assert [hint.get("share") for hint in hints[1:5]] == [0.0, 0.1, 0.2, 0.4]
    assert hints[5:] == [{"reuse": False, "capture": False}] * 2
    assert len({each["cache_salt"] for each in asked}) == 1
    assert [seen.fraction for seen in found.observations] == [0.0, 0.1, 0.2, 0.4]
    assert [seen.kl for seen in found.observations] == sorted((seen.kl for seen in found.observations), reverse=True)
    assert found.floor_kl == [0.0]
    assert [seen.policy for seen in found.observations] == [None, *["question"] * 3]


def test_readings_of_another_policy_are_left_out() -> None:
    items = items_of(TEXT, 1, LENGTHS)[:2]

    def falling_back(body: bytes) -> bytes:
        reply = json.loads(engine(body))
        if json.loads(body)["prompt"] == items[1].recipient and reply["kv_transfer_params"]["semblend"].get(
            "selected_by"
        ):
            reply["kv_transfer_params"]["semblend"]["selected_by"] = "first"
        return json.dumps(reply).encode()

    found = measure(falling_back, "m", items)
    assert [(seen.item, seen.fraction) for seen in found.observations] == [
        *((items[0].name, share) for share in (0.0, 0.1, 0.2, 0.4)),
        (items[1].name, 0.0),
    ]
    assert found.skipped == [f"{items[1].name}: first selected, not question"] * 3


def test_a_share_counts_as_spent_when_the_engine_says_so() -> None:
    def unable(body: bytes) -> bytes:
        reply = json.loads(engine(body))
        if "compute_share" in (own := reply["kv_transfer_params"]["semblend"]):
            own["compute_share"] = 0.0
        return json.dumps(reply).encode()

    found = measure(unable, "m", items_of(TEXT, 1, LENGTHS)[:1])
    assert [seen.fraction for seen in found.observations] == [0.0] * 4


def test_what_is_not_blended_is_skipped_after_a_little_patience() -> None:
    waited: list[float] = []
    cold = json.loads(engine(b'{"prompt": "", "kv_transfer_params": {"semblend": {"reuse": false}}}'))
    found = measure(lambda _: json.dumps(cold).encode(), "m", items_of(TEXT, 1, LENGTHS)[:1], (0.0,), waited.append)
    assert (found.observations, len(found.skipped), len(waited)) == ([], 1, 3)


def test_a_recipient_whose_donor_comes_late_is_tried_again_where_it_left_nothing() -> None:
    """A recipient that was computed cold is in the engine's own cache under its salt, and is never blended there."""
    stored: dict[str, int] = {}
    cached: set[str] = set()

    def slow(body: bytes) -> bytes:
        asked = json.loads(body)
        own, salt = asked["kv_transfer_params"]["semblend"], asked["cache_salt"]
        if own.get("reuse") is not False and (salt in cached or len(stored) < 2):
            cached.add(salt)
            own["reuse"] = False
        elif own.get("capture"):
            stored[salt] = 1
        return engine(json.dumps(asked).encode())

    waited: list[float] = []
    found = measure(slow, "m", items_of(TEXT, 1, LENGTHS)[:1], wait=waited.append)
    assert [seen.fraction for seen in found.observations] == [0.0, 0.1, 0.2, 0.4]
    assert (found.skipped, len(waited)) == ([], 2)
    assert waited == sorted(waited)


def test_an_item_that_the_server_refuses_is_skipped_unless_all_are() -> None:
    items = items_of(TEXT, 1, LENGTHS)

    def ask(body: bytes) -> bytes:
        if json.loads(body)["prompt"] == items[2].recipient:
            raise RefusedError("http://server: 400: maximum context length is 4096")
        return engine(body)

    found = measure(ask, "m", items)
    assert found.skipped == ["reorder/0: http://server: 400: maximum context length is 4096"]
    assert len({seen.item for seen in found.observations}) == len(items) - 1
    with pytest.raises(RefusedError, match="maximum context length"):
        measure(ask, "m", items[2:3])


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self._say(200, b'{"data": [{"id": "m", "max_model_len": 1000}]}')

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        if json.loads(body)["model"] != "m":
            self._say(404, b'{"error": {"message": "The model `other` does not exist."}}')
        else:
            self._say(200, engine(body))

    def _say(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        return None


@pytest.fixture
def server() -> Iterator[str]:
    listening = HTTPServer(("127.0.0.1", 0), _Handler)
    thread = threading.Thread(target=listening.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{listening.server_port}"
    listening.shutdown()
    thread.join()
    listening.server_close()


def test_calibrate_against_a_server(model: Path, server: str, capsys: pytest.CaptureFixture[str]) -> None:
    texts, out, kept = model / "texts.txt", model / "calibration.json", model / "seen.jsonl"
    texts.write_text(TEXT)
    flags = ["calibrate", "--model", str(model), "--server", server, "--texts", str(texts), "--items", "3"]
    assert main([*flags, "--quantile", "0.75", "--out", str(out), "--keep-observations", str(kept)]) == 0
    written = decode_prediction(out.read_text())
    law = written.laws[PlanShape.COMPOSITION]
    assert law.items == 12
    assert 4.0 < law.decay < 12.0
    assert written.statistic.startswith("16 tokens of the answer")
    assert written.policy == "question"
    printed = capsys.readouterr()
    assert "preset" in printed.out
    assert "not measured on this model" in printed.out
    options = parse_options(json.loads(printed.out.partition("options of the connector that serve by it: ")[2]))
    ceiling = options.fidelity_gate(pytest.fail).ceiling
    assert ceiling is not None
    assert (ceiling.calibration, ceiling.max_kl) == (written, 0.02)
    other = parse_options({"calibration": str(out), "max_predicted_kl": 0.02, "recompute_policy": "first"})
    with pytest.raises(ConfigurationError, match="made with recompute_policy question, and this server has first"):
        other.fidelity_gate(pytest.fail)
    unnamed = json.loads(out.read_text())
    del unnamed["policy"]
    out.write_text(json.dumps(unnamed))
    warned: list[str] = []
    assert other.fidelity_gate(lambda text, *names: warned.append(text % names)).ceiling is not None
    assert [text.partition("does not")[2] for text in warned] == [
        " name the recompute_policy it was made with; it holds for first only if that was the one"
    ]
    assert [line.split(":")[0] for line in printed.err.splitlines()] == [f"{n} of 12" for n in range(1, 13)]
    again = model / "again.json"
    more = ["--observations", str(kept), "--kl-floor", "0", "--quantile", "0.75", "--statistic", written.statistic]
    assert main(["calibrate", "--model", str(model), "--out", str(again), *more]) == 0
    assert decode_prediction(again.read_text()) == written


def test_a_server_that_does_not_answer_is_named_with_its_own_words(
    model: Path, server: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (model / "texts.txt").write_text(TEXT)
    flags = ["calibrate", "--model", str(model), "--texts", str(model / "texts.txt"), "--items", "1"]
    flags += ["--quantile", "0.5", "--out", str(model / "c.json")]
    assert main([*flags, "--server", server, "--served-name", "other"]) == 3
    assert f"semblend: {server}: 404: The model `other` does not exist." in capsys.readouterr().err
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        assert main([*flags, "--server", url]) == 3
        assert f"semblend: {url}: connection refused; is the server running?" in capsys.readouterr().err


def test_what_can_be_refused_before_minutes_of_measuring_is(
    model: Path, server: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (model / "texts.txt").write_text(TEXT)
    flags = ["calibrate", "--model", str(model), "--texts", str(model / "texts.txt"), "--server", server]
    for more, message in (
        (["--items", "0", "--out", "c.json"], "--items must be at least 9"),
        (["--items", "8", "--out", "c.json"], "--items must be at least 9 per class for a quantile of 0.9"),
        (["--quantile", "2", "--out", "c.json"], "the quantile must be between 0 and 1"),
        (["--items", "90", "--out", "c.json"], "add text, or reduce --items or --longest"),
        (["--items", "9", "--out", str(model / "none" / "c.json")], "does not exist"),
    ):
        assert main([*flags, *more]) == 2
        assert message in capsys.readouterr().err


def test_the_curve_is_measured_where_asked_for(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[tuple[Path, int, int]] = []

    def measured_curve(folder: Path, passages: list[str], prompts: int) -> DeviationCurve:
        asked.append((folder, len(passages), prompts))
        return DeviationCurve("m", None, (0.0, 0.2), 0.001, Provenance.MEASURED)

    monkeypatch.chdir(model)
    monkeypatch.setitem(sys.modules, "semblend.integration.depth", SimpleNamespace(measured_curve=measured_curve))
    (model / "texts.txt").write_text(TEXT)
    seen = [Observation(str(n), PlanShape.EDIT, 0.1, 0.0, 0.1) for n in range(9)]
    (model / "seen.jsonl").write_text("".join(f"{encode_observation(each)}\n" for each in seen))
    flags = ["calibrate", "--model", str(model), "--observations", "seen.jsonl", "--kl-floor", "0", "--out", "c.json"]
    flags += ["--texts", "texts.txt", "--measure-curve", "2"]
    assert main(flags) == 0
    assert asked == [(model, 75, 2)]
    assert decode_prediction((model / "c.json").read_text()).curve.deviation == (0.0, 0.2)
    assert "deviation by layer: measured" in capsys.readouterr().out
    monkeypatch.setitem(sys.modules, "semblend.integration.depth", None)
    assert main(flags) != 0
    assert "kvmend[embedder]" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([], "give either --server"),
        (["--observations", "seen.jsonl", "--measure-curve", "2"], "--measure-curve needs --texts"),
        (["--server", "http://127.0.0.1:9"], "--texts"),
        (["--observations", "seen.jsonl"], "--kl-floor"),
        (["--server", "somewhere", "--texts", "texts.txt"], "expected a URL"),
        (["--server", "http://127.0.0.1:9", "--texts", "texts.txt", "--longest", "90"], "--longest must be at least"),
    ],
)
def test_wrong_usage_is_one_line(
    model: Path, flags: list[str], message: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(model)
    (model / "texts.txt").write_text(TEXT * 4)
    (model / "seen.jsonl").write_text(encode_observation(Observation("a", PlanShape.EDIT, 0.1, 0.0, 0.1)))
    assert main(["calibrate", "--model", str(model), "--out", "out.json", *flags]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not (model / "out.json").exists()


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
