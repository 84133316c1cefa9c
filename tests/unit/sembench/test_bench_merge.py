"""A cold and a warm run become pairs only if they are runs of the same thing."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.fakes.blending_server import running

from sembase.errors import ContractError
from sembench.cli.main import main
from sembench.live.merge import merge
from sembench.manifest import WorkloadItem, write_manifest
from sembench.result import read_result


@pytest.fixture(scope="module")
def halves(tmp_path_factory: pytest.TempPathFactory, fixture_items: Sequence[WorkloadItem]) -> Path:
    """A folder with cold.json and warm.json of the same items."""
    folder = tmp_path_factory.mktemp("halves")
    items = [item for item in fixture_items if item.source_id == "ferry" and not item.is_stream]
    write_manifest(folder / "m.jsonl", items[:6])
    common = ["run-live-gateway", "--manifest", str(folder / "m.jsonl"), "--recipient-max-tokens", "8"]
    resets = ["--reset-url", "/reset_prefix_cache?reset_external=true"]
    with running("--events", folder / "events", "--ms-per-token", "0.02") as url:
        for name, flags in (("cold", ["--cold-only"]), ("warm", ["--connector-audit", str(folder / "events")])):
            output = ["--output", str(folder / f"{name}.json"), "--gateway-url", url]
            assert main([*common, *output, *resets, *flags]) == 0
    return folder


def test_two_halves_make_pairs(halves: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--cold", str(halves / "cold.json"), "--warm", str(halves / "warm.json")]
    assert main(["merge-results", *arguments, "--output", str(halves / "both.json")]) == 0
    result, rows = read_result(halves / "both.json")
    assert result["run"]["kind"] == "merged"
    assert result["paired"]["pairs"] == result["paired"]["clean_pairs"] == 6
    assert result["paired"]["hit_only_ttft_speedup_n"] > 0
    cold = {row.item_id: row for row in read_result(halves / "cold.json")[1]}
    warm = {row.item_id: row for row in read_result(halves / "warm.json")[1]}
    for row in rows:
        assert row.cold == cold[row.item_id].cold
        assert row.warm == warm[row.item_id].warm
        assert row.backend == warm[row.item_id].backend
        assert row.pair is not None
        assert row.pair.warm_first is False
        assert row.pair.answer_flip is False, "the stand-in answers alike, right or wrong"
    assert set(result["run"]["merged_from"]) == {"cold", "warm"}
    assert "hit-only" in capsys.readouterr().out
    assert main(["assert-result-gates", "--result", str(halves / "both.json"), "--require-contamination-check"]) == 0


def changed(halves: Path, name: str, change: Callable[[dict[str, Any]], object]) -> Path:
    result = json.loads((halves / f"{name}.json").read_text())
    change(result)
    path = halves / f"changed-{name}.json"
    path.write_text(json.dumps(result))
    return path


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda r: r["run"].update(manifest_digest="0" * 64), "different manifests"),
        (lambda r: r["run"].update(evidence="offline"), "only live runs"),
        (lambda r: r["engine"].update(version="9.9"), "different engines: fake 1.2.3 and fake 9.9"),
        (lambda r: r["engine"].update(name="other"), "different engines"),
        (lambda r: r.update(engine=None), r"different engines: fake 1.2.3 and \(no name\) \(no version\)"),
        (lambda r: r["environment"].update(platform="another"), "different machines"),
        (lambda r: r["environment"]["hardware"].update(cpus=4096), "different machines"),
        (lambda r: r["config"].update(model="another"), "differ in model"),
        (lambda r: r["config"].update(recipient_max_tokens=99), "differ in recipient_max_tokens"),
        (lambda r: r["config"].update(endpoint="completions"), "differ in endpoint"),
        (lambda r: r["requests"].pop(), "in one result only"),
        (lambda r: r["requests"].append(r["requests"][0]), "two rows"),
        (lambda r: r["requests"][0].update(warm=None), "is not a row of a warm-only run"),
        (lambda r: r["requests"][0].update(cold=r["requests"][0]["warm"]), "is not a row of a warm-only run"),
        (lambda r: r["requests"][0].update(prompt_tokens=7), "prompt_tokens is"),
        (lambda r: r["requests"][0].update(transform="rag_reorder"), "transform is"),
    ],
)
def test_what_does_not_belong_together_is_refused(
    halves: Path, change: Callable[[dict[str, Any]], object], problem: str
) -> None:
    with pytest.raises(ContractError, match=problem):
        merge(halves / "cold.json", changed(halves, "warm", change))


def test_the_halves_cannot_be_swapped(halves: Path) -> None:
    with pytest.raises(ContractError, match="cold-only"):
        merge(halves / "warm.json", halves / "cold.json")


def test_without_answers_the_cold_text_is_the_measure(halves: Path) -> None:
    def unanswered(result: dict[str, Any]) -> None:
        for row in result["requests"]:
            row["quality_pass"] = None

    cold = changed(halves, "cold", unanswered)
    warm = json.loads((halves / "warm.json").read_text())
    unanswered(warm)
    warm["requests"][0]["warm"]["text"] = "something else entirely"
    (halves / "unanswered.json").write_text(json.dumps(warm))
    result = merge(cold, halves / "unanswered.json")
    flips = [row["pair"]["answer_flip"] for row in result["requests"]]
    assert flips == [True, False, False, False, False, False]
    assert [row["quality_pass"] for row in result["requests"]] == [not flip for flip in flips]


def test_a_wrong_answer_that_became_another_wrong_one_is_a_flip(halves: Path) -> None:
    def wrong(result: dict[str, Any]) -> None:
        for row in result["requests"]:
            row["quality_pass"] = False

    cold = changed(halves, "cold", wrong)
    warm = json.loads((halves / "warm.json").read_text())
    wrong(warm)
    warm["requests"][0]["warm"]["text"] = "something else entirely"
    (halves / "wrong.json").write_text(json.dumps(warm))
    flips = [row["pair"]["answer_flip"] for row in merge(cold, halves / "wrong.json")["requests"]]
    assert flips == [True, False, False, False, False, False]


def test_the_output_is_no_input(halves: Path) -> None:
    arguments = ["--cold", str(halves / "cold.json"), "--warm", str(halves / "warm.json")]
    assert main(["merge-results", *arguments, "--output", str(halves / "warm.json")]) == 2
