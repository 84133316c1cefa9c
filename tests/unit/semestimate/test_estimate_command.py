"""``semblend estimate`` as a user runs it: figures, 80 columns, one page without requests, Ctrl-C."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from sembase.command_line import ExitCode
from sembase.trace.save import save_records
from semblend.cli.main import main
from semestimate.analysis import Analysis
from semgate.prompt.digest import Digests
from semgate.proxy.exchange import Exchange
from semgate.proxy.record import RecordMaker

SAMPLES = Path(__file__).parents[1] / "sembase" / "trace_samples"
WORDS = ("harbour", "ledger", "signal", "bridge", "ferry", "archive", "garden", "letter", "engine", "licence")


def chats(path: Path, requests: int = 40) -> Path:
    """One-shot questions over the same passages in changing order."""
    draws = random.Random(4)
    passages = [" ".join(draws.choices(WORDS, k=120)) for _ in range(6)]
    with path.open("w", encoding="utf-8") as stream:
        for number in range(requests):
            content = "\n\n".join([*draws.sample(passages, 3), f"Question {number}: what is carried?"])
            messages = [
                {"role": "system", "content": "Answer from the passages."},
                {"role": "user", "content": content},
            ]
            stream.write(json.dumps({"model": "m", "messages": messages, "timestamp": 1.7e9 + number}) + "\n")
    return path


def estimate(trace: Path, folder: Path, *more: str) -> dict[str, Any]:
    folder.mkdir(exist_ok=True)
    files = ["--output", str(folder / "page.html"), "--json", str(folder / "figures.json")]
    assert main(["estimate", str(trace), *files, "--quiet", *more]) == ExitCode.OK
    found: dict[str, Any] = json.loads((folder / "figures.json").read_text(encoding="utf-8"))
    return found


def test_content_that_recurs_in_another_order_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = estimate(chats(tmp_path / "chats.jsonl"), tmp_path, "--price", "2.5")
    figures = found["figures"]
    total = figures["prompt"]["tokens"]
    anywhere = sum(each["work"]["tokens"] for each in figures["anywhere"]["found"].values())
    assert figures["requests"] == 40
    assert figures["prefix_tokens"] / total < 0.5
    assert anywhere / total > 0.4
    assert figures["missed"]["tokens"] + figures["prefix_tokens"] == total
    shown = capsys.readouterr().out
    assert "VERDICT: " in shown
    assert max(map(len, shown.splitlines()[:-1])) <= 80


def under_instructions(path: Path) -> Path:
    """Long documents below changing instructions; the last eight are followed by an earlier note."""
    draws = random.Random(5)
    documents, notes = ([" ".join(draws.choices(WORDS, k=words)) for _ in range(4)] for words in (1500, 150))
    prompts = list(notes)
    for number in range(20):
        parts = [" ".join(draws.choices(WORDS, k=9)), documents[number % 4], *notes[: number >= 12]]
        prompts.append("\n\n".join(parts))
    lines = [{"model": "m", "messages": [{"role": "user", "content": prompt}]} for prompt in prompts]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def test_what_is_served_is_counted_in_the_class_in_which_it_was_found(tmp_path: Path) -> None:
    """The gates leave only the document of a composition of document and note."""
    anywhere = estimate(under_instructions(tmp_path / "log.jsonl"), tmp_path)["figures"]["anywhere"]
    assert anywhere["found"]["composition"]["requests"] == 4, "the first of each document with the note"
    assert anywhere["served"].keys() <= anywhere["found"].keys()
    for shape, served in anywhere["served"].items():
        found = anywhere["found"][shape]
        assert served["requests"] <= found["requests"], shape
        assert served["work"]["tokens"] <= found["work"]["tokens"], shape


def test_a_user_who_cannot_change_the_prompts_reads_what_kvmend_saves(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same sentence in the terminal and on the page, with the figure of the JSON."""
    verdict = estimate(under_instructions(tmp_path / "log.jsonl"), tmp_path)["verdict"]
    assert verdict["decision"] == "change the prompts first"
    sentence = f"If you cannot change them: kvmend saves {100 * verdict['saved_share']:.1f} % of the prefill time"
    assert sentence in " ".join(capsys.readouterr().out.split())
    assert sentence in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_the_page_loads_nothing(tmp_path: Path) -> None:
    estimate(chats(tmp_path / "chats.jsonl"), tmp_path)
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "<script" not in page
    assert not re.findall(r"(?:src|href)=\"(?!#)", page)
    assert "prefers-color-scheme: dark" in page


def test_an_interrupted_run_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = chats(tmp_path / "chats.jsonl")

    def add(self: Analysis, request: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Analysis, "add", add)
    page = tmp_path / "page.html"
    assert main(["estimate", str(trace), "--output", str(page), "--quiet"]) == ExitCode.INTERRUPTED
    assert "interrupted" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == [trace]


def test_no_file_beside_the_page_runs_code(tmp_path: Path) -> None:
    """Earlier releases unpickled ``<page>.checkpoint``; this one calls ``os.system`` through a module of ours."""
    mark = tmp_path / "mark"
    command = f"touch {mark}".encode()
    hostile = b"\x80\x02csemestimate.command\nload_target\nVos:system\n\x85RV" + command + b"\n\x85R."
    (tmp_path / "page.html.checkpoint").write_bytes(hostile)
    estimate(chats(tmp_path / "chats.jsonl", 5), tmp_path)
    assert not mark.exists()


@pytest.mark.parametrize("name", ["litellm.jsonl", "otel_sdk.jsonl"])
def test_exports_of_other_tools_are_read(name: str, tmp_path: Path) -> None:
    assert estimate(SAMPLES / name, tmp_path)["figures"]["requests"] > 0


def test_without_session_ids_the_summary_says_what_it_cannot_tell(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = "No session ids: compacted history and new text look alike."
    estimate(chats(tmp_path / "chats.jsonl", 5), tmp_path)
    assert missing in " ".join(capsys.readouterr().out.split())
    estimate(SAMPLES / "claude_log.jsonl", tmp_path)
    assert missing not in " ".join(capsys.readouterr().out.split())


def test_reported_prefix_hits_are_of_the_prompt_that_the_server_saw(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A log may lack the system prompt and the tools, which the server found in its cache: never more than 100 %."""
    trace = tmp_path / "log.jsonl"
    bodies = [{"model": "m", "messages": [{"role": "user", "content": f"question {n}"}]} for n in range(4)]
    usage = {"prompt_tokens": 1000, "prompt_tokens_details": {"cached_tokens": 900}, "completion_tokens": 1}
    trace.write_text("".join(json.dumps({**body, "usage": usage}) + "\n" for body in bodies), encoding="utf-8")
    estimate(trace, tmp_path)
    shown = " ".join(capsys.readouterr().out.split())
    assert "The server itself reported prefix hits of 90.0 % of the prompt tokens over 4 requests." in shown


def test_ids_of_prefixes_give_no_verdict_about_other_positions(tmp_path: Path) -> None:
    trace = tmp_path / "mooncake.jsonl"
    lines = [
        {"timestamp": n, "input_length": 1024, "output_length": 5, "hash_ids": [2 * n + 1, 2 * n + 2]}
        for n in range(20)
    ]
    trace.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    assert estimate(trace, tmp_path)["verdict"]["decision"] == "this trace cannot tell"


def test_a_trace_is_never_overwritten(tmp_path: Path) -> None:
    trace = chats(tmp_path / "chats.jsonl")
    assert main(["estimate", str(trace), "--output", str(trace)]) == ExitCode.USAGE
    assert trace.read_text(encoding="utf-8").startswith("{")


def recorded(bodies: Sequence[dict[str, Any]], path: Path, *, redact_text: bool) -> Path:
    """What the proxy writes of these bodies."""
    maker = RecordMaker(Digests(b"k" * 32), redact_text=redact_text)
    records = []
    for number, body in enumerate(bodies):
        exchange = Exchange("/v1/chat/completions", (), json.dumps(body).encode(), "t", 1.7e12 + number, 0.0)
        exchange.outcome = "ok"
        record = maker.record_of(exchange)
        assert record is not None
        records.append(record)
    save_records(records, path)
    return path


def test_redacted_records_give_the_figures_of_the_text(tmp_path: Path) -> None:
    """What the proxy records by default, beside the same requests with text."""
    bodies = [json.loads(line) for line in chats(tmp_path / "chats.jsonl").read_text(encoding="utf-8").splitlines()]
    shares = []
    for redact_text in (True, False):
        trace = recorded(bodies, tmp_path / f"redacted-{redact_text}.jsonl", redact_text=redact_text)
        figures = estimate(trace, tmp_path / f"{redact_text}")["figures"]
        total = figures["prompt"]["tokens"]
        found = sum(each["work"]["tokens"] for each in figures["anywhere"]["found"].values())
        shares.append((total, figures["prefix_tokens"] / total, found / total))
    redacted, text = shares
    assert redacted[0] == text[0]
    assert redacted[1:] == pytest.approx(text[1:], abs=0.01)


HIDDEN = "head changed (cause hidden)"


def changed_heads(kind: str) -> list[dict[str, Any]]:
    """Requests whose head has another time, or other tools, each time."""
    draws = random.Random(7)
    policy, document = (" ".join(draws.choices(WORDS, k=300)) for _ in range(2))
    tools = [{"type": "function", "function": {"name": f"{word}_tool", "description": policy[:80]}} for word in WORDS]
    bodies = []
    for number in range(12):
        system = f"It is 2026-11-19 05:{10 + number}.\n\n{policy}" if "time" in kind else policy
        turns = [{"role": "user", "content": f"{document}\n\nWhat is carried?"}]
        if "conversation" in kind:
            turns += [{"role": "assistant", "content": document[:600]}, {"role": "user", "content": "And then?"}]
        body: dict[str, Any] = {"model": "m", "messages": [{"role": "system", "content": system}, *turns]}
        if "tools" in kind:
            body["tools"] = tools[: 1 + number % 10]
        bodies.append({**body, "user": "u"} if "session" in kind else body)
    return bodies


@pytest.mark.parametrize(
    "kind", ["time", "time, session", "time, session, conversation", "tools, session, conversation"]
)
def test_redacted_records_name_no_cause_that_they_hide(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = estimate(recorded(changed_heads(kind), tmp_path / "redacted.jsonl", redact_text=True), tmp_path)
    assert list(found["figures"]["misses"]["breaks"]) == [HIDDEN]
    (advice,) = found["advice"]
    assert advice["saved"]["tokens"] > 2000
    assert "--redact-text false" in advice["change"]
    shown = capsys.readouterr().out + (tmp_path / "page.html").read_text(encoding="utf-8")
    assert f"break: {HIDDEN}" in shown
    for other in ("new instruction, old document", "Put the document", "system prompt changed", "tools added"):
        assert other not in shown


def test_recorded_text_names_the_changed_time(tmp_path: Path) -> None:
    for kind in ("time", "time, session, conversation"):
        trace = recorded(changed_heads(kind), tmp_path / "text.jsonl", redact_text=False)
        assert list(estimate(trace, tmp_path)["figures"]["misses"]["breaks"]) == ["date or id changed"]
