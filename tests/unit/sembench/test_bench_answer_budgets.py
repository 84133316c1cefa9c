"""Budgets by answers: what is asked, what counts, what is left out; an interrupted measurement continues."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Self

import pytest

from sembase.errors import ConfigurationError
from sembench.cli.answer_budgets import SERVER_OPTIONS
from sembench.cli.main import main
from sembench.http.reply import LiveReply
from sembench.http.request import LiveRequest
from sembench.live import answer_budgets, item_trials
from sembench.live.answer_budgets import (
    SHORT_TOKENS,
    BudgetRun,
    NothingMeasuredError,
    measure,
    summarize,
    texts_of,
)
from sembench.live.item_trials import ItemTrial, ItemTrials, measure_text, trials_from_json
from sembench.live.options import LiveOptions
from sembench.live.session import RequestBuilder
from sembench.replay.partial import partial_path
from semblend.contract import PlanShape
from semblend.contract.answer_budgets import MIN_RIGHT, AnswerBudgets, Trial, decode_budgets
from semblend.integration.sglang import options as sglang_options
from semblend.integration.vllm import options as vllm_options

FRACTIONS = (0.1, 0.2)
RUN = BudgetRun(base_url="http://127.0.0.1:1", output=Path("b.json"), items=MIN_RIGHT, fractions=FRACTIONS)


class Engine:
    """Answers right, from the prompt; wrong where ``is_lost`` says so. Classes are those the items were built for.

    ``deaf``: so many requests with a fraction are not reused. ``is_shaky``: a prompt whose first half was asked before
    in its tenant is answered otherwise. ``is_wrong``: what is answered wrong without reuse.
    """

    root_url = "http://127.0.0.1:1"

    def __init__(
        self,
        is_lost: Callable[[str, float], bool] = lambda shape, fraction: False,
        deaf: int = 0,
        *,
        is_shaky: bool = False,
        is_wrong: Callable[[str], bool] = lambda text: False,
    ) -> None:
        self.asked: list[LiveRequest] = []
        self._is_lost = is_lost
        self._deaf = deaf
        self._is_shaky = is_shaky
        self._is_wrong = is_wrong

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *fault: object) -> None: ...

    async def wait_ready(self, seconds: float) -> str:
        return "m"

    async def ask(self, request: LiveRequest) -> LiveReply:
        self.asked.append(request)
        text = str(request.prompt)
        hints = request.hints or {}
        fraction = hints.get("recompute_fraction")
        answer, report, ms = self._right(text), None, 1000.0
        in_halves = any(each.tenant == request.tenant and text != each.prompt != "ok" for each in self.asked)
        is_other = self._is_shaky and request.request_id.startswith("again") and in_halves
        if fraction is None and is_other != self._is_wrong(text):
            answer = "nowhere"
        if fraction is not None and not request.stream:
            shape = self._shape(text)
            if self._deaf:
                self._deaf -= 1
            else:
                is_moved = shape in (PlanShape.REORDER, PlanShape.COMPOSITION)
                report = {
                    "outcome": "backend_materialized_reuse",
                    "class": shape.value,
                    "selected_by": "question",
                    "runs": [{"length": 200, "context_risk": 0.1}]
                    + [{"length": n, "context_risk": 0.8} for n in (720, 700) if is_moved],
                }
                answer, ms = ("nowhere" if self._is_lost(shape.value, fraction) else answer), 250.0
        words = len(text.split())
        return LiveReply(request.request_id, "ok", text=answer, prompt_tokens=words, total_ms=ms, backend=report)

    @staticmethod
    def _shape(text: str) -> PlanShape:
        if "Record 1:" in text:
            return PlanShape.REORDER
        if "Document 1:" in text:
            return PlanShape.COMPOSITION
        return PlanShape.EDIT if "which hall is the crate" in text else PlanShape.NEW_INSTRUCTION

    @staticmethod
    def _right(text: str) -> str:
        if asked := re.search(r"Where does (.+?) live\?", text):
            return next(iter(re.findall(rf"{asked[1]} lives in (\w+)\.", text)), "not said")
        if asked := re.search(r"In which hall is the crate (\w+)\?", text):
            return str(re.findall(rf"So the crate {asked[1]} is in hall (\w+)\.", text)[0])
        return "ok"


def measured(monkeypatch: pytest.MonkeyPatch, engine: Engine, run: BudgetRun) -> AnswerBudgets:
    monkeypatch.setattr(answer_budgets, "LiveClient", lambda *given, **named: engine)
    monkeypatch.setattr(item_trials, "_WAITS_S", (0.0, 0.0, 0.0))
    return asyncio.run(measure(run)).budgets


def test_every_class_gets_the_counts_of_each_fraction(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    run = replace(RUN, output=tmp_path / "b.json")
    found = measured(monkeypatch, Engine(lambda shape, fraction: shape == "reorder" and fraction < 0.2), run)
    assert decode_budgets(run.output.read_text(), "b.json") == found
    assert not partial_path(run.output).exists()
    assert (found.policy, found.weights) == ("question", None)
    assert {one.shape: one.min_moved_tokens for one in found.budgets} == {
        PlanShape.NEW_INSTRUCTION: 0,
        PlanShape.EDIT: 0,
        PlanShape.REORDER: 700,
        PlanShape.COMPOSITION: 700,
    }
    assert {(one.shape, one.up_to_tokens) for one in found.budgets} == {
        (PlanShape.NEW_INSTRUCTION, SHORT_TOKENS),
        (PlanShape.EDIT, SHORT_TOKENS),
        (PlanShape.REORDER, run.lengths[0]),
        (PlanShape.COMPOSITION, run.lengths[0]),
    }
    for one in found.budgets:
        lost = [trial.lost for trial in one.trials]
        assert lost == ([MIN_RIGHT, 0] if one.shape is PlanShape.REORDER else [0, 0])
        assert [(trial.items, trial.right, trial.gained) for trial in one.trials] == [(MIN_RIGHT, MIN_RIGHT, 0)] * 2
        assert [trial.speedup for trial in one.trials] == [4.0, 4.0]


def test_every_length_has_items_of_its_own() -> None:
    texts = texts_of(replace(RUN, lengths=(2048, 4096)), 1.5)
    ids = [item.item_id for text in texts for item in text.items]
    assert len(set(ids)) == len(ids) == 6 * MIN_RIGHT
    words: dict[int, list[int]] = {}
    for text in texts:
        words.setdefault(text.up_to_tokens, []).append(len(text.items[0].recipient_prompt.split()))
    assert list(words) == [SHORT_TOKENS, 2048, 4096]
    for covered, lengths in words.items():
        assert 0.5 * covered < 1.5 * max(lengths) <= covered


def test_single_classes_can_be_measured_and_only_passages_that_move_at_every_length() -> None:
    run = replace(RUN, lengths=(2048, 4096))
    for shape, lengths in ((PlanShape.EDIT, {SHORT_TOKENS}), (PlanShape.COMPOSITION, {2048, 4096})):
        texts = texts_of(replace(run, classes=(shape,)), 1.5)
        assert {text.up_to_tokens for text in texts} == lengths
        assert len({item.transform for text in texts for item in text.items}) == 1


def test_questions_about_one_text_share_donors_that_ask_something_else() -> None:
    for text in texts_of(RUN, 1.5):
        first, *others = text.items
        assert len(others) in ((0,) if first.dataset == "derived_stated" else (3, MIN_RIGHT % 4 - 1))
        shared = first.recipient_prompt[: first.recipient_prompt.rindex("Where does")] if others else ""
        for item in others:
            assert item.donor_prompts == first.donor_prompts
            assert item.recipient_prompt.startswith(shared)
            assert Engine._right(item.recipient_prompt) == item.answers[0]
        assert len({item.answers for item in text.items}) == len(text.items)
        for donor in first.donor_prompts:
            asked = donor.text.partition("Request: ")[2].partition("\n")[0]
            assert asked.endswith("?")
            assert not any(asked in item.recipient_prompt for item in text.items)


def test_donors_of_a_composition_have_read_a_passage_of_another_text() -> None:
    (text, *_) = texts_of(replace(RUN, classes=(PlanShape.COMPOSITION,)), 1.5)
    first = text.items[0].recipient_prompt
    assert len(text.items[0].donor_prompts) == 4
    for donor in text.items[0].donor_prompts:
        foreign, own = donor.text.partition("\n\nRequest:")[0].split("\n\nDocument 2:\n")
        assert own in first
        assert foreign.removeprefix("Document 1:\n") not in first
        assert len(foreign) > 0.5 * len(own)


def measure_first(engine: Engine, questions: int, *waits: Callable[[float], Awaitable[object]]) -> list[ItemTrials]:
    requests = RequestBuilder(LiveOptions(endpoint="completions"), "m", by_tenant=True)
    text = texts_of(RUN, 1.5)[0]
    wait = waits[0] if waits else lambda seconds: asyncio.sleep(0)
    return asyncio.run(measure_text(text.items[:questions], text.up_to_tokens, engine, requests, FRACTIONS, wait))


def test_donors_are_sent_once_for_all_questions_and_cold_answers_come_last() -> None:
    """As in the engine without us: they have its exact cache, and leave the whole text in it."""
    engine = Engine()
    rows = measure_first(engine, 2)
    donor, poke, *asked = engine.asked
    assert poke.max_tokens == 1, "an idle engine stores its donors with the next step"
    assert not any(request.stream for request in asked), "streams of vLLM carry no report"
    assert len({request.request_id for request in engine.asked}) == len(engine.asked)
    assert {request.tenant for request in asked} == {donor.tenant}
    warm, cold = asked[:4], asked[4:]
    assert [request.hints for request in warm] == [{"recompute_fraction": f, "capture": False} for f in FRACTIONS * 2]
    assert [request.hints for request in cold] == [{"reuse": False, "capture": False}] * 2
    assert [request.prompt for request in asked] == [asked[n].prompt for n in (0, 0, 2, 2, 0, 2)]
    assert asked[0].prompt != asked[2].prompt
    assert [trial.right for row in rows for trial in row.trials] == [True] * 4
    assert [row.cold_ms for row in rows] == [1000.0, None], "the second one found its text in the exact cache"
    assert [trials_from_json(json.loads(json.dumps(row.to_json())), "here") for row in rows] == rows


def test_a_donor_that_was_stored_late_is_sent_again_to_another_tenant() -> None:
    waited: list[float] = []

    async def wait(seconds: float) -> None:
        waited.append(seconds)

    engine = Engine(deaf=2)
    (row,) = measure_first(engine, 1, wait)
    assert row.measured_shape is PlanShape.NEW_INSTRUCTION
    assert len(waited) == 3
    assert waited == sorted(waited)
    asked = [request for request in engine.asked if "poke" not in request.request_id]
    assert len({request.tenant for request in asked}) == 3
    first, second = measure_first(Engine(deaf=9), 2)
    assert [(each.measured_shape, each.trials, each.why) for each in (first, second)] == [
        (None, (), "the server reports no reuse")
    ] * 2
    assert (first.cold_right, second.cold_right, second.cold_read) == (True, None, None), "the second was not asked"
    assert not first.is_complete
    assert first.item_id != second.item_id


def budget_of(item: ItemTrials) -> list[Trial]:
    rows = [replace(item, item_id=str(n)) for n in range(4)]
    steady = [row(n, PlanShape.NEW_INSTRUCTION, True, True) for n in range(100, 100 + MIN_RIGHT)]
    (found,) = summarize([*rows, *steady], RUN, "m", None).budgets
    return list(found.trials)


@pytest.mark.parametrize("is_wrong", [False, True], ids=["lost", "gained"])
def test_an_answer_that_a_second_cold_run_changes_too_tells_nothing(*, is_wrong: bool) -> None:
    """The second one computes the prompt in halves; only questions whose answer reuse changed are asked again."""
    for is_shaky in (False, True):
        engine = Engine(
            lambda shape, fraction: is_wrong != (fraction == FRACTIONS[0]),
            is_shaky=is_shaky,
            is_wrong=lambda text: is_wrong,
        )
        rows = measure_first(engine, 2)
        again = [request for request in engine.asked if request.request_id.startswith("again")]
        assert [request.request_id.endswith(".half") for request in again] == [True, False] * 2
        for half, whole in zip(again[::2], again[1::2], strict=True):
            assert str(whole.prompt).startswith(str(half.prompt))
            assert half.tenant == whole.tenant
            assert half.hints == whole.hints == {"reuse": False, "capture": False}
        assert len({request.tenant for request in engine.asked}) == 4, "the text, each second run, the poke"
        assert [each.cold_right for each in rows] == [not is_wrong] * 2
        assert [each.is_steady for each in rows] == [not is_shaky] * 2
        changed = 0 if is_shaky else 4
        counted = [(trial.items, trial.lost, trial.gained) for trial in budget_of(rows[0])]
        expected = (MIN_RIGHT + changed, 0, changed) if is_wrong else (MIN_RIGHT + changed, changed, 0)
        assert counted == [expected, (MIN_RIGHT + changed, 0, 0)]
    kept = Engine()
    assert [each.floor_right for each in measure_first(kept, 2)] == [None] * 2
    assert not any(request.request_id.startswith("again") for request in kept.asked)


def test_the_answer_of_an_earlier_revision_is_lost_although_it_was_wrong_before() -> None:
    wrong = row(0, PlanShape.EDIT, False, False, cold=False)
    stale, other = (
        replace(wrong.trials[0], read=read, stale=stale) for read, stale in (("Rome", True), ("Bonn", False))
    )
    assert [wrong.is_lost(each) for each in (stale, other)] == [True, False]
    assert not replace(wrong, cold_read="Rome").is_lost(stale), "so it was without reuse"


def row(
    number: int,
    shape: PlanShape | None,
    *right: bool | None,
    cold: bool = True,
    moved: int = 0,
    policy: str = "question",
) -> ItemTrials:
    return ItemTrials(
        item_id=str(number),
        dataset="plain_fact",
        transform="instruction_variant",
        up_to_tokens=1536,
        prompt_tokens=1000,
        shape=None if shape is None else shape.value,
        moved_runs=moved,
        shortest_run=700,
        policy=policy,
        cold_right=cold,
        cold_read="Oslo",
        cold_ms=100.0,
        floor_right=None,
        trials=tuple(
            ItemTrial(fraction=fraction, right=each, read=None, stale=None, ms=None)
            for fraction, each in zip(FRACTIONS, right, strict=False)
        ),
        why=None,
    )


def test_only_steady_items_of_the_class_with_all_of_its_fractions_count() -> None:
    new, edit = PlanShape.NEW_INSTRUCTION, PlanShape.EDIT
    rows = [row(n, new, n != 3, True) for n in range(MIN_RIGHT)]
    rows += [
        row(100, new, False, True, cold=False),  # wrong cold: counts as an item that may be gained
        replace(row(104, new, False, False), floor_right=False),  # lost by a second cold run as well
        row(101, new, False, None),  # one reply was not usable
        row(102, new, False, False, moved=1),  # moved: the gate asks other budgets for it
        row(103, None),
        *(row(200 + n, edit, False, False) for n in range(MIN_RIGHT - 1)),
    ]
    (only,) = summarize(rows, RUN, "m", None).budgets
    assert [(trial.lost, trial.gained, trial.right, trial.items) for trial in only.trials] == [
        (1, 0, MIN_RIGHT, MIN_RIGHT + 1),
        (0, 1, MIN_RIGHT, MIN_RIGHT + 1),
    ]
    mixed = summarize([*rows, row(300, new, False, False, policy="first")], RUN, "m", None)
    assert mixed == summarize(rows, RUN, "m", None), "an item whose donor lacked something tells nothing"
    assert mixed.policy == "question"


def test_a_length_covers_no_prompts_of_less_than_half_of_it() -> None:
    run = replace(RUN, lengths=(2048, 3000, 8192))
    over = {length: run.over_tokens(length) for length in (SHORT_TOKENS, *run.lengths)}
    assert over == {SHORT_TOKENS: 0, 2048: SHORT_TOKENS, 3000: 2048, 8192: 4096}


def test_classes_that_were_not_measured_keep_what_the_file_says(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    run = replace(RUN, output=tmp_path / "b.json")
    whole = measured(monkeypatch, Engine(), run)
    one = replace(run, classes=(PlanShape.REORDER,), seed=1)
    again = measured(monkeypatch, Engine(lambda shape, fraction: True), one)
    assert decode_budgets(run.output.read_text(), "b.json") == again
    assert {each.shape: each.trials[0].lost for each in again.budgets} == {
        each.shape: MIN_RIGHT if each.shape is PlanShape.REORDER else 0 for each in whole.budgets
    }
    (tmp_path / "config.json").write_text("{}")
    others = measured(monkeypatch, Engine(), replace(one, model_dir=tmp_path))
    assert [each.shape for each in others.budgets] == [PlanShape.REORDER], "the file was of other weights"


def test_an_interrupted_measurement_continues_where_it_ended(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    run = replace(RUN, output=tmp_path / "b.json")

    class Dies(Engine):
        async def ask(self, request: LiveRequest) -> LiveReply:
            if len(self.asked) > 40:
                raise KeyboardInterrupt
            return await super().ask(request)

    dying = Dies()
    with pytest.raises(KeyboardInterrupt):
        measured(monkeypatch, dying, run)
    lines = partial_path(run.output).read_text().splitlines()
    assert len(lines) > 2
    again = Engine()
    found = measured(monkeypatch, again, replace(run, resume=True, items=MIN_RIGHT + 2))
    assert [trial.items for one in found.budgets for trial in one.trials] == [MIN_RIGHT + 2] * 8
    kept = [json.loads(line)["item_id"] for line in lines[1:]]
    assert all(each not in {request.request_id.split(".")[0] for request in again.asked} for each in kept)
    partial_path(run.output).write_text("\n".join(lines) + "\n")
    with pytest.raises(ConfigurationError, match="other settings"):
        measured(monkeypatch, Engine(), replace(run, resume=True, seed=1))


def test_a_server_that_fails_ends_the_measurement(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Fails(Engine):
        async def ask(self, request: LiveRequest) -> LiveReply:
            reply = await super().ask(request)
            return reply if len(self.asked) < 9 else replace(reply, status="http_500", detail="out of memory")

    run = replace(RUN, output=tmp_path / "b.json")
    with pytest.raises(ConnectionError, match="5 items in a row failed"):
        measured(monkeypatch, Fails(), run)
    assert len(measured(monkeypatch, Engine(), replace(run, resume=True)).budgets) == 4, "failed items are asked again"


def test_what_failed_with_one_fraction_is_asked_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Late(Engine):
        async def ask(self, request: LiveRequest) -> LiveReply:
            reply = await super().ask(request)
            is_late = (request.hints or {}).get("recompute_fraction") == FRACTIONS[1]
            return replace(reply, status="timeout") if is_late else reply

    run = replace(RUN, output=tmp_path / "b.json", classes=(PlanShape.NEW_INSTRUCTION,))
    with pytest.raises(NothingMeasuredError):
        measured(monkeypatch, Late(), run)
    (found,) = measured(monkeypatch, Engine(), replace(run, resume=True)).budgets
    assert [trial.items for trial in found.trials] == [MIN_RIGHT] * 2


def test_a_text_of_which_some_questions_were_measured_is_continued(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    run = replace(RUN, output=tmp_path / "b.json", classes=(PlanShape.REORDER,))
    measured(monkeypatch, first := Engine(), run)
    part = partial_path(run.output)
    text = texts_of(run, 1.0)[-1]  # as long as this engine counts tokens; it has fewer than four questions
    with pytest.MonkeyPatch.context() as kept:
        kept.setattr("sembench.replay.partial.PartialWriter.discard", lambda self: None)
        measured(kept, Engine(), run)
    again = Engine()
    found = measured(monkeypatch, again, replace(run, resume=True, items=MIN_RIGHT + 2)).budgets
    assert not part.exists()
    assert [trial.items for trial in found[0].trials] == [MIN_RIGHT + 2] * 2

    def donors(engine: Engine) -> list[object]:
        asked = {donor.text for donor in text.items[0].donor_prompts}
        return [request.prompt for request in engine.asked if request.prompt in asked]

    assert donors(first) == donors(again) != [], "more questions about the same text, after the same donors"


def test_nothing_is_written_where_nothing_was_measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Wrong(Engine):
        @staticmethod
        def _right(text: str) -> str:
            return "nowhere"

    with pytest.raises(NothingMeasuredError, match="no class has 50 right cold answers"):
        measured(monkeypatch, Wrong(), replace(RUN, output=tmp_path / "b.json"))
    assert not (tmp_path / "b.json").exists()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "--model-dir"),
        (("--output", "{}/b.json", "--fractions", "0.2", "0.1"), "rise"),
        (("--output", "{}/b.json", "--lengths", "4096", "2048"), "rise"),
        (("--model-dir", "{}"), "no readable model"),
    ],
)
def test_wrong_usage_is_one_line(
    arguments: tuple[str, ...], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [each.format(tmp_path) for each in arguments]
    code = main(["answer-budgets", "--gateway-url", "http://127.0.0.1:9", "--ready-seconds", "0", *given])
    assert code == 2
    assert says in capsys.readouterr().err


def test_the_command_prints_which_fraction_is_taken(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    engine = Engine(lambda shape, fraction: shape == "reorder" and fraction < 0.2)
    monkeypatch.setattr(answer_budgets, "LiveClient", lambda *given, **named: engine)
    monkeypatch.setattr(item_trials, "_WAITS_S", (0.0,))
    (tmp_path / "config.json").write_text("{}")
    common = ("--gateway-url", "http://127.0.0.1:9", "--model-dir", str(tmp_path), "--items", str(MIN_RIGHT))
    rows = tmp_path / "rows.jsonl"
    assert main(["answer-budgets", *common, "--fractions", "0.1", "0.2", "--keep-rows", str(rows)]) == 0
    printed = capsys.readouterr().out
    assert re.search(r"reorder +4,096 +0.2 +50 of 50 +0 +0 +1.3 % +7.1 % +4.0 +this one", printed), printed
    assert len(rows.read_text().splitlines()) == 4 * MIN_RIGHT
    assert decode_budgets((tmp_path / "kvmend-answers.json").read_text(), "f").weights is not None


def test_a_server_that_reuses_nothing_is_recognized_and_the_options_to_use_are_printed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(answer_budgets, "LiveClient", lambda *given, **named: Engine(deaf=10**6))
    monkeypatch.setattr(item_trials, "_WAITS_S", (0.0,))
    few = ("--items", str(MIN_RIGHT))
    common = ("--gateway-url", "http://127.0.0.1:9", "--output", str(tmp_path / "b.json"), *few)
    assert main(["answer-budgets", *common]) == 2
    printed = capsys.readouterr().err
    assert "the server reused nothing in 5 items in a row (the server reports no reuse)" in printed
    assert '"max_context_share": 1.0' in printed
    assert "--resume" in printed


def test_the_printed_server_options_are_options() -> None:
    vllm = vllm_options.parse_options(SERVER_OPTIONS["vllm"])
    sglang = sglang_options.parse_options(json.dumps(SERVER_OPTIONS["sglang"]))
    assert vllm.gates.max_context_share == sglang.gates.max_context_share == 1.0
