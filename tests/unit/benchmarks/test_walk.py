"""The pieces of the walk without an engine: traffic, recording through a real proxy, steps, the comparison."""

from __future__ import annotations

import itertools
import json
import random
from pathlib import Path
from typing import Any

import pytest
from benchmarks.walk import compare
from benchmarks.walk.recording import ChatFailedError, ask, kinds_of, record
from benchmarks.walk.steps import OtherWalkError, Steps
from benchmarks.walk.traffic import CHANGED_HEAD, NEW_INSTRUCTION, REORDERED, UNRELATED, Chat, Conversation, chats
from scripts.data.folder import REAL_DATA
from tests.fakes.model_folder import write_model_folder
from tests.fakes.openai_server import running
from tests.unit.benchmarks.walk_laws import MAX_DIFFERENCE, count, estimate, figures_of

from sembase.trace.digest_tokens import KEY_BYTES
from sembase.trace.load import read_records
from sembench.workload.build import build_items
from sembench.workload.sources.trace import read_trace_records, with_donors
from sembench.workload.transforms import TransformContext
from semgate.prompt.digest import MIN_SECRET_BYTES

TEXTS = REAL_DATA / "text"
needs_texts = pytest.mark.skipif(not TEXTS.is_dir(), reason="the real texts beside the repository are absent")


def text(name: str, words: int = 400) -> str:
    """Words that the model of ``write_model_folder`` knows."""
    return " ".join(f"w{number}" for number in random.Random(name).choices(range(500), k=words))


def small_traffic() -> list[Chat]:
    """Twelve chats of all kinds, interleaved."""
    conversations = [
        Conversation(NEW_INSTRUCTION, "document", 3, (text("a", 1_000),)),
        Conversation(CHANGED_HEAD, "session", 4, (text("b"),), ("Who spoke?", "What was decided?")),
        Conversation(REORDERED, "passages", 3, tuple(text(f"c{number}x", 80) for number in range(4)), ("Why?",)),
        Conversation(UNRELATED, "other", 2, (text("d"),)),
    ]
    turns = [(turn, conversation) for turn in range(4) for conversation in conversations if turn < conversation.turns]
    return [Chat(number, turn, conversation) for number, (turn, conversation) in enumerate(turns)]


def recorded(folder: Path, *flags: str) -> Path:
    with running() as upstream:
        record(small_traffic(), upstream, folder, model="fake-model", flags=flags, max_tokens=4)
    return folder / "traces"


@needs_texts
@pytest.mark.shared_data
def test_traffic_of_real_texts_has_every_kind_and_only_planned_repeats() -> None:
    traffic = chats(TEXTS, 38)
    kinds = [chat.kind for chat in traffic]
    assert len(traffic) == 38
    assert {kind: kinds.count(kind) for kind in (NEW_INSTRUCTION, CHANGED_HEAD, REORDERED)} == {
        NEW_INSTRUCTION: 8,
        CHANGED_HEAD: 8,
        REORDERED: 6,
    }
    texts = [chat.conversation.texts for chat in traffic if chat.turn == 0]
    assert len(set(texts)) == len(texts)


def test_a_session_keeps_its_history_under_a_changed_head(tmp_path: Path) -> None:
    traces = recorded(tmp_path, "--redact-text", "false")
    session = [chat for chat in small_traffic() if chat.conversation.kind == CHANGED_HEAD]
    prompts = [each.prompt_text() for each in read_records(traces)]
    turns = [prompts[chat.number] for chat in session]
    for earlier, later in itertools.pairwise(turns):
        at = earlier.index("You take part")
        assert earlier[:at] != later[:at]
        assert later[later.index("You take part") :].startswith(earlier[at:])


def test_the_recording_pairs_each_chat_with_its_kind_and_becomes_a_workload(tmp_path: Path) -> None:
    traces = recorded(tmp_path, "--redact-text", "false")
    traffic = small_traffic()
    assert kinds_of(tmp_path) == [chat.kind for chat in traffic]
    records = tuple(with_donors(read_trace_records(traces)))
    items = build_items(records, ("recorded",), TransformContext(records)).items
    repeats = [chat.turn > 0 for chat in traffic]
    assert [not item.negative_control for item in items] == repeats


def test_a_chat_that_fails_names_the_reply() -> None:
    with running() as upstream, pytest.raises(ChatFailedError, match="answered 404"):
        ask(upstream, "m", [{"role": "user", "content": "a"}], "u", 1, path="/nowhere")


def test_finished_steps_are_not_repeated_and_failed_ones_are(tmp_path: Path) -> None:
    done: list[str] = []

    def fail() -> None:
        done.append("second")
        raise OSError("no server")

    steps = Steps(tmp_path, {"chats": 3})
    steps.run("first", lambda: done.append("first"))
    with pytest.raises(OSError, match="no server"):
        steps.run("second", fail)
    again = Steps(tmp_path, {"chats": 3})
    again.run("first", lambda: done.append("never"))
    again.run("second", lambda: done.append("second again"))
    assert done == ["first", "second", "second again"]
    assert set(again.seconds()) == {"first", "second"}
    with pytest.raises(OtherWalkError, match="--fresh"):
        Steps(tmp_path, {"chats": 4})
    assert not Steps(tmp_path, {"chats": 4}, fresh=True).is_done("first")


def test_redacted_and_text_records_give_the_same_estimate(tmp_path: Path) -> None:
    model = str(write_model_folder(tmp_path / "model"))
    secret = tmp_path / "secret"  # the same in every run: at so few tokens, another key may move a figure by a percent
    secret.write_bytes(bytes(MIN_SECRET_BYTES))
    secret.chmod(0o600)
    found = []
    for name, redact in (("redacted", "true"), ("text", "false")):
        options = ("--redact-text", redact, "--tokenizer", model, "--digest-secret-file", str(secret))
        traces = recorded(tmp_path / name, *options)
        assert {each.tokenizer for each in read_records(traces)} == {"model/tokenizer.json"}
        found.append(figures_of(estimate(traces, *(("--tokenizer", model) if name == "text" else ()))))
    first, second = found
    assert first["prompt tokens"] == second["prompt tokens"] > 0
    for name, value in second.items():
        assert first[name] == pytest.approx(value, rel=MAX_DIFFERENCE), name


def test_reuse_from_digests_equals_the_planners_search(tmp_path: Path) -> None:
    found = count(recorded(tmp_path, "--redact-text", "false"), bytes(KEY_BYTES))
    assert found.requests == len(small_traffic())
    assert found.by_planner > found.prefix
    assert found.by_digests == pytest.approx(found.by_planner, rel=MAX_DIFFERENCE)


def row(source_id: str, cold_ms: float, warm_ms: float, cached: int, reused: int | None) -> dict[str, Any]:
    arm = {"status": "ok", "prompt_tokens": 300}
    backend = None if reused is None else {"engine_request_id": "e", "outcome": "x", "reused_tokens": reused}
    return {
        "item_id": source_id,
        "dataset": "d",
        "source_id": source_id,
        "transform": "recorded",
        "tenant": "t",
        "negative_control": False,
        "stream_id": None,
        "prompt_tokens": 300,
        "total_blocks": 2,
        "cold": {**arm, "request_id": "c", "ttft_ms": cold_ms, "cached_tokens": 0, "contaminated": False},
        "warm": {**arm, "request_id": "w", "ttft_ms": warm_ms, "cached_tokens": cached},
        "pair": {"warm_first": False},
        "backend": backend,
    }


def test_the_comparison_counts_prefix_and_reuse_apart() -> None:
    result = {"requests": [row("a", 1000.0, 400.0, 200, 150), row("b", 900.0, 880.0, 0, 0)]}
    stock = {"requests": [row("b", 800.0, 790.0, 0, None), row("a", 950.0, 850.0, 40, None)]}
    measured = compare.measurements(result, stock, ["a", "b"])
    assert [(each.exact_tokens, each.reused_tokens, each.stock_cached_tokens) for each in measured] == [
        (50, 150, 40),
        (0, 0, 0),
    ]
    predicted = [compare.Predicted(300, 48, 160, 0.1, 0.5), compare.Predicted(300, 0, 0, 0.0, 0.0)]
    pairs = compare.pairs_of(["x", "y"], predicted, measured)
    prefix, reuse, both = compare.savings(pairs)
    assert [prefix.predicted_s, prefix.measured_s] == pytest.approx([0.1, 0.11])
    assert [reuse.predicted_s, reuse.measured_s] == pytest.approx([0.5, 0.36])
    assert both.error == pytest.approx((0.6 - 0.62) / 0.62)
    assert [each[0] for each in compare.kind_rows(compare.pairs_of(["x", "y"], predicted, measured))] == [
        "x",
        "y",
        "all",
    ]


def test_a_request_that_was_not_measured_cleanly_is_an_error() -> None:
    dirty = row("a", 1000.0, 400.0, 0, None)
    dirty["cold"]["contaminated"] = True
    with pytest.raises(compare.ComparisonError, match="request a"):
        compare.measurements({"requests": [dirty]}, {"requests": [row("a", 1.0, 1.0, 0, None)]}, ["a"])


def test_predictions_sum_to_the_estimate_and_refuse_another(tmp_path: Path) -> None:
    model = write_model_folder(tmp_path / "model")
    traces = recorded(tmp_path / "recording", "--redact-text", "false", "--tokenizer", str(model))
    estimated = estimate(traces, "--tokenizer", str(model))
    found = compare.predictions(traces, model, estimated)
    assert sum(each.served_tokens for each in found) == figures_of(estimated)["served by default gates"] > 0
    other = json.loads(json.dumps(estimated))
    other["verdict"]["saved_s"] += 1.0
    with pytest.raises(compare.ComparisonError, match="saved"):
        compare.predictions(traces, model, other)
