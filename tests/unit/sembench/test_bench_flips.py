"""Answers per class: scores, flips and stale answers beside the floor of two cold runs, and the gates on them."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.fakes.blending_server import running

from sembase.errors import ContractError
from sembench.cli.main import main
from sembench.console.answers import CLASS, FLIPS, SCORES, answers_table
from sembench.console.table import plain_text
from sembench.flips import ALL, AnswerClass, answer_classes, floor_arms, lost_items
from sembench.gates.judge import judge
from sembench.gates.other_run import OtherRun
from sembench.gates.request import GateRequest
from sembench.manifest import read_manifest, write_manifest
from sembench.metrics.rows import ArmRow, BackendRow, RequestRow
from sembench.report.subject import read_subjects
from sembench.result import RunFacts, assemble, write_result
from sembench.workload.build import build_items
from sembench.workload.record import SourceRecord
from sembench.workload.transforms import TransformContext
from semblend.contract import Evidence

BLOCK = 16


def arm(request_id: str, read: str | None, score: float | None = None, **fields: Any) -> ArmRow:
    right = None if score is None else score == 1.0
    values: dict[str, Any] = {"status": "ok", "ttft_ms": 5.0, "total_ms": 9.0, "prompt_tokens": 160}
    values |= {
        "cached_tokens": 0,
        "text": read or "",
        "answer_read": read,
        "answer_score": score,
        "answer_right": right,
    }
    return ArmRow(request_id=request_id, **{**values, **fields})


def pair(
    number: int,
    cold: ArmRow | tuple[str | None, float | None],
    warm: tuple[str | None, float | None],
    *,
    stale: bool | None = None,
    reused: int | None = 64,
    task: str = "key_value",
    transform: str = "rag_reorder",
    **fields: Any,
) -> RequestRow:
    item = f"i{number}"
    outcome = "backend_materialized_reuse" if reused else "cold_fallback"
    backend = None if reused is None else BackendRow(engine_request_id=item, outcome=outcome, reused_tokens=reused)
    values: dict[str, Any] = {"negative_control": False, "tenant": None, "stream_id": None}
    values |= {"dataset": task, "transform": transform, "source_id": "s", "prompt_tokens": 160, "total_blocks": 10}
    return RequestRow(
        item_id=item,
        cold=cold if isinstance(cold, ArmRow) else arm(f"cold.{item}", *cold, contaminated=False),
        warm=arm(item, *warm, answer_stale=stale, cached_tokens=reused or 0),
        backend=backend,
        backend_confirmed_blocks=None if reused is None else reused // BLOCK,
        **{**values, **fields},
    )


RIGHT, WRONG = ("7", 1.0), ("8", 0.0)


def only(rows: list[RequestRow], floor: dict[str, ArmRow] | None = None) -> AnswerClass:
    (found,) = answer_classes(rows, floor, block_size=BLOCK)
    return found


def test_flips_are_of_answerable_pairs_and_changes_of_all() -> None:
    rows = [pair(0, RIGHT, RIGHT), pair(1, RIGHT, WRONG), pair(2, WRONG, RIGHT), pair(3, WRONG, WRONG)]
    found = only(rows)
    assert (found.pairs, found.served, found.answerable, found.flips) == (4, 4, 2, 1)
    assert (found.cold, found.ours, found.exact_cold, found.exact_ours) == (0.5, 0.5, 2, 2)
    assert found.change is not None
    assert found.change.value == 0.0, "one lost, one gained"
    assert (found.same, found.f1_to_cold) == (2, 0.5)
    assert found.flips_beyond_floor == 1, "without a floor every flip counts"
    assert (found.floor_n, found.floor_flips, found.stale) == (None, None, None)


def test_a_flip_that_two_cold_runs_have_as_well_is_not_beyond_the_floor() -> None:
    rows = [pair(number, RIGHT, WRONG) for number in range(4)] + [pair(4, RIGHT, RIGHT)]
    floor = {
        "i0": arm("cold.i0", *WRONG),
        "i1": arm("cold.i1", *RIGHT),
        "i3": arm("cold.i3", None),
        "other": arm("x", "9"),
    }
    found = only(rows, floor)
    assert (found.flips, found.flips_beyond_floor) == (4, 3), "items without a floor reading count"
    assert (found.floor_n, found.floor_same, found.floor_answerable, found.floor_flips) == (3, 1, 3, 1)


def test_stale_answers_are_counted_apart_from_other_wrong_ones() -> None:
    rows = [
        pair(0, RIGHT, ("6", 0.0), stale=True),
        pair(1, RIGHT, WRONG, stale=False),
        pair(2, WRONG, ("6", 0.0), stale=True),
        pair(3, RIGHT, ("6", 0.0), stale=True),
        pair(4, arm("cold.i4", "6", 0.0, answer_stale=True), ("6", 0.0), stale=True),
    ]
    again = replace(arm("cold.i3", "6", 0.0), answer_stale=True)
    found = only(rows, {"i3": again, "i0": arm("cold.i0", *RIGHT)})
    assert (found.answerable, found.flips, found.revised) == (3, 3, 5)
    assert (found.stale, found.stale_beyond_floor) == (3, 2), "also where cold is wrong, unless cold is stale, too"
    assert found.floor_stale == 1


def test_only_served_pairs_count_and_unreported_ones_are_served() -> None:
    rows = [pair(0, RIGHT, WRONG, reused=0), pair(1, RIGHT, RIGHT), pair(2, RIGHT, WRONG, reused=None)]
    found = only(rows)
    assert (found.pairs, found.served, found.answerable, found.flips) == (3, 2, 2, 1)


def test_what_is_not_clean_or_not_marked_is_left_out() -> None:
    contaminated = arm("cold.i0", *RIGHT, cached_tokens=BLOCK + 1)
    failed = replace(arm("cold.i1", None), status="timeout", text=None)
    rows = [pair(0, contaminated, WRONG), pair(1, failed, WRONG), pair(2, (None, None), (None, None))]
    assert answer_classes([*rows, pair(3, RIGHT, WRONG, negative_control=True)], block_size=BLOCK) == []
    assert floor_arms([replace(pair(0, RIGHT, RIGHT), warm=None), replace(rows[1], warm=None)]).keys() == {"i0"}


def test_answers_without_gold_are_compared_with_cold_alone() -> None:
    rows = [pair(0, ("a ferry came", None), ("ferry came late", None)), pair(1, ("x", None), ("x", None))]
    found = only(rows)
    assert (found.cold, found.change, found.answerable) == (None, None, 0)
    assert found.same == 1
    assert found.f1_to_cold == pytest.approx((2 * 2 / (2 + 3) + 1) / 2)


def test_classes_are_tasks_by_transform_and_the_total_leaves_controls_out() -> None:
    rows = [
        pair(0, RIGHT, WRONG),
        pair(1, RIGHT, RIGHT, transform="field_edit"),
        pair(2, RIGHT, WRONG, transform="unread_document"),
        pair(3, RIGHT, RIGHT, task="quote"),
    ]
    found = answer_classes(rows, block_size=BLOCK)
    assert [(each.task, each.transform) for each in found] == [
        ("key_value", "rag_reorder"),
        ("key_value", "field_edit"),
        ("key_value", "unread_document"),
        ("quote", "rag_reorder"),
        (ALL, ALL),
    ]
    assert (found[-1].pairs, found[-1].flips) == (3, 1)
    shown = plain_text(answers_table(found))
    assert "was guessed" in shown
    assert "No floor" in shown


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.booleans(), st.booleans(), st.sampled_from([True, False, None]), st.sampled_from([0, 64, None])),
        max_size=30,
    )
)
def test_counts_against_a_count_by_hand(drawn: list[tuple[bool, bool, bool | None, int | None]]) -> None:
    rows = [
        pair(number, RIGHT if cold else WRONG, RIGHT if warm else WRONG, reused=reused)
        for number, (cold, warm, _, reused) in enumerate(drawn)
    ]
    floor = {
        f"i{n}": arm("f", *(RIGHT if again else WRONG)) for n, (_, _, again, _) in enumerate(drawn) if again is not None
    }
    served = [entry for entry in drawn if entry[3] != 0]
    found = answer_classes(rows, floor, block_size=BLOCK)
    if not drawn:
        assert found == []
        return
    assert found[0].served == len(served)
    assert found[0].answerable == sum(cold for cold, *_ in served)
    assert found[0].flips == sum(cold and not warm for cold, warm, *_ in served)
    assert found[0].flips_beyond_floor == sum(
        cold and not warm and again is not False for cold, warm, again, _ in served
    )
    assert found[0].floor_flips == sum(cold and again is False for cold, _, again, _ in served)
    lost = lost_items(rows, block_size=BLOCK)
    assert lost == {f"i{n}" for n, (cold, warm, _, reused) in enumerate(drawn) if cold and not warm and reused != 0}
    of_lost = answer_classes(rows, {item: arm for item, arm in floor.items() if item in lost}, block_size=BLOCK)
    assert of_lost[0].flips_beyond_floor == found[0].flips_beyond_floor
    assert found[0].same == sum(cold == warm for cold, warm, *_ in served)
    change = found[0].change
    if served:
        assert change is not None
        assert change.value == pytest.approx(sum(warm - cold for cold, warm, *_ in served) / len(served))
        assert change.low is None or change.high is None or change.low <= change.value <= change.high
    else:
        assert change is None


def test_the_interval_is_that_of_a_plain_bootstrap() -> None:
    """A difference of means over 200 pairs: the normal approximation is a good oracle."""
    rows = [pair(n, RIGHT, WRONG if n % 4 == 0 else RIGHT) for n in range(200)]
    change = only(rows).change
    assert change is not None
    assert change.value == -0.25
    assert change.low is not None
    assert change.high is not None
    half = 1.96 * (0.25 * 0.75 / 200) ** 0.5
    assert change.low == pytest.approx(-0.25 - half, abs=0.015)
    assert change.high == pytest.approx(-0.25 + half, abs=0.015)


CONFIG = {"block_size": BLOCK, "model": "m", "endpoint": "chat", "recipient_max_tokens": 24, "quality_threshold": 0.6}


def result_of(rows: list[RequestRow], digest: str = "d", **config: Any) -> tuple[dict[str, Any], list[RequestRow]]:
    facts = RunFacts(
        kind="live_gateway",
        evidence=Evidence.MEASURED_LIVE,
        manifest_name="m.jsonl",
        manifest_digest=digest,
        config={**CONFIG, **config},
        seed=0,
        engine={"name": "fake", "version": "1"},
    )
    return json.loads(json.dumps(assemble(facts, rows))), rows


def cold_only(*rows: RequestRow, digest: str = "d", **config: Any) -> OtherRun:
    alone = [replace(row, warm=None, backend=None, backend_confirmed_blocks=None) for row in rows]
    return OtherRun(*result_of(alone, digest, **config))


def judged(rows: list[RequestRow], floor: OtherRun | None, **limits: Any) -> list[str]:
    result, own = result_of(rows)
    return judge(result, own, None, GateRequest.of(**limits), floor=floor).failures


def test_gates_on_flips_stale_answers_and_loss() -> None:
    rows = [pair(n, RIGHT, RIGHT, transform="field_edit") for n in range(9)]
    rows.append(pair(9, RIGHT, ("6", 0.0), stale=True, transform="field_edit"))
    agreeing, losing = cold_only(*rows), cold_only(*rows[:9], pair(9, ("6", 0.0), WRONG))
    assert judged(rows, agreeing, max_answer_flips_beyond_floor=1) == []
    (failure,) = judged(rows, agreeing, max_answer_flips_beyond_floor=0)
    assert "answer_flips_beyond_floor is 1 (1 of 10, n = 10), wanted at most 0" in failure
    assert judged(rows, losing, max_answer_flips_beyond_floor=0) == [], "the floor loses the same one"
    assert len(judged(rows, None, max_answer_flips_beyond_floor=0)) == 1, "without a floor it counts"
    assert len(judged(rows, agreeing, max_stale_answers_beyond_floor=0)) == 1
    assert judged(rows, None, max_answer_score_loss=0.1) == []
    (failure,) = judged(rows, None, max_answer_score_loss=0.05)
    assert "key_value field_edit is worst" in failure
    assert len(judged(rows, None, max_answer_score_loss=0.1, judge_interval=True)) == 1, "the interval reaches beyond"


def test_gates_without_answers_are_not_met() -> None:
    bare = [pair(0, ("x", None), ("x", None))]
    for gate in ("max_answer_flips_beyond_floor", "max_stale_answers_beyond_floor", "max_answer_score_loss"):
        (failure,) = judged(bare, None, **{gate: 0})
        assert "was not measured" in failure


def test_a_floor_of_another_run_is_refused(tmp_path: Path) -> None:
    rows = [pair(n, RIGHT, RIGHT) for n in range(2)]
    for other, problem in (
        (cold_only(*rows, digest="e"), "different manifest"),
        (cold_only(*rows, model="n"), "differs in model"),
        (cold_only(*rows, recipient_max_tokens=9), "differs in recipient_max_tokens"),
    ):
        (failure,) = judged(rows, other)
        assert problem in failure
        write_result(tmp_path / "r.json", result_of(rows)[0])
        write_result(tmp_path / "f.json", dict(other.result))
        with pytest.raises(ContractError, match=problem):
            read_subjects([tmp_path / "r.json"], floor_result=tmp_path / "f.json")
    assert judged(rows, cold_only(*rows, concurrency=4)) == [], "what does not change answers may differ"


def test_from_build_to_report_over_http(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two servers: one that reuses and answers some items wrongly, and a second cold one that differs in one item."""
    manifest, result, floor = (str(tmp_path / name) for name in ("m.jsonl", "r.json", "floor.json"))
    words = "--datasets key_value derived_rule --max-items-per-dataset 2 --context-words 250"
    build = f"build --profile answers {words} --transforms rag_reorder field_edit unread_document --output"
    assert main([*build.split(), manifest]) == 0
    items = {(i.dataset, i.source_id): i for i in read_manifest(Path(manifest)) if i.transform == "field_edit"}
    kept, flipped = items["key_value", "0-00000"], items["key_value", "0-00001"]
    stale, unknown = items["derived_rule", "0-00000"], items["derived_rule", "0-00001"]
    answers = {
        kept.input: {"cold": kept.answers[0], "blended": f"{kept.answers[0]} it is"},
        flipped.input: {"cold": flipped.answers[0], "blended": "111"},
        stale.input: {"cold": stale.answers[0], "blended": stale.metadata["stale_answer"]},
        unknown.input: {"cold": "none", "blended": "no idea"},
    }
    second = {**answers, flipped.input: {"cold": "112", "blended": ""}}
    for name, script in (("first", answers), ("second", second)):
        (tmp_path / name).write_text(json.dumps(script))
    run = ["run-live-gateway", "--manifest", manifest, "--warm-up", "1", "--endpoint", "completions"]
    events = tmp_path / "events.jsonl"
    with running("--answers", tmp_path / "first", "--events", events) as url:
        flags = ["--paired", "--connector-audit", str(events), "--output", result]
        assert main([*run, "--gateway-url", url, *flags]) == 0
    shown = capsys.readouterr().out
    assert "Answers, cold and with reuse" in shown
    of_lost = str(tmp_path / "floor-of-lost.json")
    with running("--answers", tmp_path / "second") as url:
        cold = [*run, "--gateway-url", url, "--cold-only"]
        assert main([*cold, "--output", floor]) == 0
        assert main([*cold, "--only-lost-in", result, "--output", of_lost]) == 0
    capsys.readouterr()
    gates = ["assert-result-gates", "--result", result, "--manifest", manifest, "--floor-result", floor, "--json"]
    assert main([*gates, "--max-answer-flips-beyond-floor", "2", "--max-stale-answers-beyond-floor", "1"]) == 0
    verdict = json.loads(capsys.readouterr().out)
    classes = {(each["task"], each["transform"]): each for each in verdict["observed"]["answers"]}
    names = ("served", "answerable", "flips", "flips_beyond_floor", "floor_flips", "stale", "stale_beyond_floor")
    assert [classes["key_value", "field_edit"][name] for name in names] == [2, 2, 1, 0, 1, 0, 0]
    assert [classes["derived_rule", "field_edit"][name] for name in names] == [2, 1, 1, 1, 0, 1, 1]
    assert [classes["derived_rule", "rag_reorder"][name] for name in names] == [2, 1, 1, 1, 0, None, None]
    assert classes["key_value", "field_edit"]["same"] == 1
    assert classes[ALL, ALL]["flips_beyond_floor"] == 2
    assert main([*gates, "--max-answer-flips-beyond-floor", "1"]) == 1
    capsys.readouterr()
    gates[gates.index(floor)] = of_lost
    main(gates)
    again = {
        (each["task"], each["transform"]): each for each in json.loads(capsys.readouterr().out)["observed"]["answers"]
    }
    assert len(json.loads(Path(of_lost).read_text())["requests"]) == 5  # one of them is a control
    assert again[ALL, ALL]["floor_n"] == 4
    for name in ("flips_beyond_floor", "stale_beyond_floor"):
        assert [one[name] for one in again.values()] == [one[name] for one in classes.values()]
    page = tmp_path / "page.html"
    assert main(["report", result, "--html", str(page), "--floor-result", floor]) == 0
    text = page.read_text()
    assert "Answers by class" in text
    heads = [re.findall(r"<th[^>]*>([^<]*)</th>", part) for part in re.findall(r"<thead>.*?</thead>", text)]
    assert [*CLASS, *FLIPS] in heads
    assert [*CLASS, *SCORES] in heads
    assert "4 flips of 6 answerable pairs, 2 of them beyond the floor." in text
    assert "derived_rule" in text


def test_tool_calls_of_a_stream_are_joined_from_two_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The server garbles blended answers; how often calls equal cold's is held against two cold runs."""
    calls, history = [], "<task>Repair the parser.</task>"
    for call in range(8):
        prompt, answer = f"Today is day {call // 4}.\n{history}\n\n```bash\n", f"cat part_{call}.py"
        metadata = {"session_id": "s1", "tenant": "t1", "score": "command"}
        calls.append(SourceRecord("x", f"{call}", prompt, answers=(answer,), verbatim=True, metadata=metadata))
        lines = "\n".join(f"line {number} of part {call}" for number in range(12))
        history += f"\n\n<output>\n{lines}\n</output>"
    names = ("m.jsonl", "warm.json", "cold.json", "floor.json", "merged.json")
    manifest, warm, cold, floor, merged = (str(tmp_path / name) for name in names)
    write_manifest(Path(manifest), build_items(calls, ("stream",), TransformContext(())).items)
    run = ["run-live-gateway", "--manifest", manifest, "--warm-up", "1", "--endpoint", "completions"]
    events = tmp_path / "events.jsonl"
    with running("--garble", "--events", events) as url:
        common = [*run, "--gateway-url", url]
        assert main([*common, "--connector-audit", str(events), "--output", warm]) == 0
        assert main([*common, "--cold-only", "--output", cold]) == 0
        assert main([*common, "--cold-only", "--output", floor]) == 0
    assert main(["merge-results", "--cold", cold, "--warm", warm, "--output", merged]) == 0
    capsys.readouterr()
    main(["assert-result-gates", "--result", merged, "--floor-result", floor, "--json"])
    (calls_of,) = json.loads(capsys.readouterr().out)["observed"]["answers"]
    rows = json.loads(Path(merged).read_text())["requests"]
    blended = [row for row in rows if row["backend"]["reused_tokens"]]
    assert blended
    assert calls_of["served"] == len(blended)
    assert calls_of["same"] == sum(row["cold"]["answer_read"] == row["warm"]["answer_read"] for row in blended) == 0
    assert calls_of["floor_same"] == calls_of["floor_n"] == len(blended)
