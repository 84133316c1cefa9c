from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from sembase.errors import ConfigurationError
from sembench.cli.main import main
from sembench.manifest import DonorPrompt, WorkloadItem, read_manifest, write_manifest
from sembench.metrics.rows import RequestRow
from sembench.planner import PLANNERS, DonorPlanner, PlannerConfig
from sembench.replay.offline import OfflineRun, run_offline
from sembench.replay.partial import partial_path
from sembench.replay.session import ReplayConfig, Tools
from sembench.replay.units import replay_unit, replay_units, units_of
from semblend.contract import ContextRisk, Decline, DeclineReason, Namespace, ReusePlan, Run, TokenRange

TIMES = ("plan_ms", "plan_latency_ms_p50", "plan_latency_ms_p99")


def without_times(value: Any) -> Any:
    """A result without clocks: everything else must be the same on every run."""
    if isinstance(value, dict):
        return {k: without_times(v) for k, v in value.items() if k not in (*TIMES, "created_at_utc")}
    return [without_times(v) for v in value] if isinstance(value, list) else value


def run(manifest: Path, output: Path, **options: Any) -> dict[str, Any]:
    return run_offline(OfflineRun(manifest=manifest, output=output, config=ReplayConfig(), **options))


def rows_by_transform(result: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {row["transform"]: row for row in result["requests"] if row["stream_id"] is None}


def test_the_planner_finds_what_each_transform_promises(manifest: Path, tmp_path: Path) -> None:
    result = run(manifest, tmp_path / "r.json")
    rows = rows_by_transform(result)
    for row in rows.values():
        plan, blocks = row["plan"], row["total_blocks"]
        assert plan["unverified_tokens"] == 0
        if row["negative_control"]:
            assert plan["planned_tokens"] == row["any_position_tokens"] == row["exact_hit_blocks"] == 0
        elif row["transform"] in (
            "instruction_variant",
            "same_evidence_new_task",
            "leading_evidence_new_task",
            "rag_reorder",
        ):
            assert row["exact_prefix_blocks"] <= 1
            assert plan["eligible_blocks"] >= 0.8 * blocks
    assert rows["exact_repeat"]["exact_prefix_blocks"] == rows["exact_repeat"]["total_blocks"]
    assert rows["multi_donor_composite"]["plan"]["donors"] == 4
    for name in ("entity_swap", "number_swap"):
        assert rows[name]["changed_tokens"] > 0
        assert rows[name]["changed_planned_tokens"] == 0
        assert rows[name]["plan"]["planned_tokens"] > 0
    assert rows["instruction_variant"]["changed_tokens"] is None


def test_the_result_has_the_promised_shape(manifest: Path, tmp_path: Path) -> None:
    run(manifest, tmp_path / "r.json")
    result = json.loads((tmp_path / "r.json").read_text())
    assert sorted(result) == [
        "aggregate",
        "by_transform",
        "config",
        "created_at_utc",
        "engine",
        "environment",
        "paired",
        "requests",
        "result_version",
        "run",
    ]
    assert result["result_version"] == "sembench.result.v2"
    assert result["run"]["evidence"] == "offline"
    assert result["engine"] is None
    assert result["paired"] is None
    assert len(result["run"]["manifest_digest"]) == 64
    assert result["config"]["tokenizer"]["is_model_tokenizer"] is False
    assert "not a model's tokenizer" in result["config"]["tokenizer"]["warning"]
    assert {"package_version", "contract_version", "git_revision", "hardware"} <= set(result["environment"])
    assert [row["item_id"] for row in result["requests"]] == [item.item_id for item in read_manifest(manifest)]


def test_jobs_change_nothing(manifest: Path, tmp_path: Path) -> None:
    serial = run(manifest, tmp_path / "serial.json")
    parallel = run(manifest, tmp_path / "parallel.json", jobs=2)
    assert without_times(parallel) == without_times(serial)


def interrupt_after(monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    """Let the replay die after so many rows, as a killed process would."""

    def dying(*arguments: Any) -> Any:
        for count, row in enumerate(replay_units(*arguments)):
            if count == rows:
                raise KeyboardInterrupt
            yield row

    monkeypatch.setattr("sembench.replay.offline.replay_units", dying)


@pytest.mark.parametrize("rows", [0, 2, 9])
def test_a_resumed_run_equals_an_uninterrupted_one(
    manifest: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    """2 dies inside the stream, 9 among the items."""
    whole = run(manifest, tmp_path / "whole.json")
    output = tmp_path / "r.json"
    with monkeypatch.context() as patched:
        interrupt_after(patched, rows)
        with pytest.raises(KeyboardInterrupt):
            run(manifest, output)
    assert not output.exists()
    partial = partial_path(output)
    assert len(partial.read_text().splitlines()) == rows + 1
    with partial.open("a") as stream:
        stream.write('{"item_id": "half a li')
    replayed: list[RequestRow] = []

    def counting(*arguments: Any) -> Any:
        for row in replay_units(*arguments):
            replayed.append(row)
            yield row

    monkeypatch.setattr("sembench.replay.offline.replay_units", counting)
    resumed = run(manifest, output, resume=True)
    assert without_times(resumed) == without_times(whole)
    assert len(replayed) == len(whole["requests"]) - rows
    assert not partial.exists()


def test_without_resume_everything_is_replayed(manifest: Path, tmp_path: Path) -> None:
    output = tmp_path / "r.json"
    partial_path(output).write_text("rubbish\n")
    run(manifest, output)
    assert not partial_path(output).exists()


def test_rows_of_another_run_are_refused(manifest: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output = tmp_path / "r.json"
    with monkeypatch.context() as patched:
        interrupt_after(patched, 2)
        with pytest.raises(KeyboardInterrupt):
            run(manifest, output)
    other = OfflineRun(manifest=manifest, output=output, config=ReplayConfig(block_size=32), resume=True)
    with pytest.raises(ConfigurationError, match="belongs to a run with another manifest or other settings"):
        run_offline(other)
    lines = partial_path(output).read_text().splitlines()
    partial_path(output).write_text(lines[0] + "\n" + '{"item_id": 3}\n')
    with pytest.raises(ConfigurationError, match="is damaged"):
        run(manifest, output, resume=True)


def test_max_items_takes_the_first(manifest: Path, tmp_path: Path) -> None:
    result = run(manifest, tmp_path / "r.json", max_items=3)
    assert [row["item_id"] for row in result["requests"]] == [i.item_id for i in read_manifest(manifest, 3)]
    assert result["run"]["max_items"] == 3


def test_duplicate_ids_and_empty_manifests_are_refused(tmp_path: Path, fixture_items: tuple[WorkloadItem, ...]) -> None:
    path = tmp_path / "m.jsonl"
    write_manifest(path, [fixture_items[0], fixture_items[0]])
    with pytest.raises(ConfigurationError, match="occurs twice"):
        run(path, tmp_path / "r.json")
    path.write_text("\n")
    with pytest.raises(ConfigurationError, match="holds no items"):
        run(path, tmp_path / "r.json")


def stream_item(number: int, text: str, tenant: str = "t") -> WorkloadItem:
    return WorkloadItem(
        item_id=f"{number:016d}",
        dataset="d",
        source_id=str(number),
        transform="stream",
        recipient_prompt=text,
        metadata={"stream": True, "stream_id": "s", "tenant": tenant},
    )


def words(start: int, count: int) -> str:
    return " ".join(f"w{i}x" for i in range(start, start + count))


def replay(items: list[WorkloadItem]) -> list[RequestRow]:
    return list(replay_units(units_of(items, ()), ReplayConfig(), jobs=1))


def test_in_a_stream_earlier_recipients_are_the_donors() -> None:
    first, second = stream_item(1, words(0, 300)), stream_item(2, "another head " + words(0, 300))
    rows = replay([first, second])
    assert rows[0].any_position_tokens == 0
    assert rows[0].plan is not None
    assert rows[0].plan.planned_tokens == 0
    assert rows[1].any_position_tokens is not None
    assert rows[1].any_position_tokens > 0.9 * rows[1].prompt_tokens
    assert rows[1].plan is not None
    assert rows[1].plan.eligible_blocks > 0.8 * rows[1].total_blocks
    backwards = replay([second, first])
    assert backwards[0].any_position_tokens == 0


def test_streams_and_tenants_do_not_see_one_another() -> None:
    text = words(0, 300)
    other_stream = replace(stream_item(2, text), metadata={"stream": True, "stream_id": "other", "tenant": "t"})
    other_tenant = stream_item(3, text, tenant="u")
    for row in replay([stream_item(1, text), other_stream, other_tenant]):
        assert row.any_position_tokens == row.exact_hit_blocks == 0
        assert row.plan is not None
        assert row.plan.decline_reason == "no_candidate"


def test_one_items_donor_serves_no_other_item() -> None:
    text = words(0, 300)
    with_donor = WorkloadItem(
        item_id="a" * 16,
        dataset="d",
        source_id="1",
        transform="x",
        recipient_prompt="new head " + text,
        donor_prompts=(DonorPrompt("q", text),),
    )
    without = WorkloadItem(
        item_id="b" * 16,
        dataset="d",
        source_id="2",
        transform="x",
        recipient_prompt="new head " + text,
        donor_prompts=(DonorPrompt("q", words(9000, 300)),),
    )
    rows = {row.item_id: row for row in replay([with_donor, without])}
    assert rows["a" * 16].any_position_tokens
    assert rows["b" * 16].any_position_tokens == 0
    plan = rows["b" * 16].plan
    assert plan is not None
    assert plan.planned_tokens == 0


def test_a_donor_without_tenant_is_the_recipients_and_null_is_not() -> None:
    text = words(0, 300)
    for metadata, found in (
        ({}, True),
        ({"tenant": "t"}, True),
        ({"tenant": None}, False),
        ({"tenant_id": "u"}, False),
    ):
        donor = DonorPrompt("q", text, metadata=metadata)
        item = WorkloadItem(
            item_id="a" * 16,
            dataset="d",
            source_id="1",
            transform="x",
            recipient_prompt="new head " + text,
            donor_prompts=(donor,),
            metadata={"tenant": "t"},
        )
        (row,) = replay([item])
        assert bool(row.any_position_tokens) is found
        assert row.plan is not None
        assert bool(row.plan.planned_tokens) is found


class LyingPlanner:
    """Claims that the whole prompt comes from the first donor it was given, whatever that holds."""

    def __init__(self, config: PlannerConfig) -> None:
        self._donors: list[str] = []

    def register(self, donor_id: str, ids: NDArray[np.int64], namespace: Namespace, text: str) -> None:
        self._donors.append(donor_id)

    def forget(self, donor_id: str) -> None:
        self._donors.remove(donor_id)

    def plan(
        self, ids: NDArray[np.int64], namespace: Namespace, exact_prefix_tokens: int, text: str
    ) -> ReusePlan | Decline:
        end = len(ids) - 1
        if not self._donors or end <= exact_prefix_tokens:
            return Decline(DeclineReason.NO_CANDIDATE)
        span = TokenRange(exact_prefix_tokens, end)
        run = Run(self._donors[0], span.start, span.start, len(span), ContextRisk(0, 0, 0.0))
        return ReusePlan(len(ids), exact_prefix_tokens, (span,), (run,), ())

    def wait_until_indexed(self) -> None: ...

    def close(self) -> None: ...


def open_liar(config: PlannerConfig) -> DonorPlanner:
    return LyingPlanner(config)


if "liar" not in PLANNERS.names():
    PLANNERS.register("liar", open_liar)


def test_the_bench_believes_no_planner(fixture_items: tuple[WorkloadItem, ...]) -> None:
    """A planner that claims everything gets credit only for tokens that are equal; the rest is counted against it."""
    negatives = [item for item in fixture_items if item.transform in ("negative_control", "cross_tenant")][:4]
    tools = Tools(ReplayConfig(planner=PlannerConfig(kind="liar")))
    for unit in units_of(negatives, ()):
        for row in replay_unit(unit, tools):
            assert row.plan is not None
            if row.transform == "negative_control":
                assert row.plan.unverified_tokens > 0.9 * row.prompt_tokens
                assert row.plan.eligible_blocks == 0
            else:
                # Same text, other tenant: every token is equal, and only the tenant's wall is missing.
                assert row.plan.eligible_blocks > 0


def test_one_donor_only_gives_less(manifest: Path, tmp_path: Path) -> None:
    single = ReplayConfig(planner=PlannerConfig(multi_donor=False, min_reuse_ratio=0.0))
    result = run_offline(OfflineRun(manifest=manifest, output=tmp_path / "r.json", config=single))
    row = rows_by_transform(result)["multi_donor_composite"]
    assert row["plan"]["donors"] == 1
    assert 0 < row["plan"]["planned_tokens"] < 0.5 * row["prompt_tokens"]
    assert row["plan"]["unverified_tokens"] == 0


def test_an_embedder_is_compared_with_none(manifest: Path, tmp_path: Path) -> None:
    config = ReplayConfig(planner=PlannerConfig(embedder="jaccard"))
    result = run_offline(OfflineRun(manifest=manifest, output=tmp_path / "r.json", config=config))
    plain = run(manifest, tmp_path / "plain.json")
    for row, alone in zip(result["requests"], plain["requests"], strict=True):
        without = {k: v for k, v in row["token_plan"].items() if k != "plan_ms"}
        assert without == {k: v for k, v in alone["plan"].items() if k != "plan_ms"}
        assert row["plan"]["candidate_blocks"] >= row["token_plan"]["candidate_blocks"]
    assert plain["aggregate"]["semantic_path_extra_eligible_blocks"] is None
    extra = result["aggregate"]["semantic_path_extra_candidate_blocks"]
    assert extra == sum(r["plan"]["candidate_blocks"] - r["token_plan"]["candidate_blocks"] for r in result["requests"])
    formatting = rows_by_transform(result)["fuzzy_edit"]
    assert formatting["plan"]["discoveries"] > 0
    assert formatting["token_plan"]["discoveries"] == 0


def test_an_unknown_embedder_is_an_error_not_a_token_path(manifest: Path, tmp_path: Path) -> None:
    config = ReplayConfig(planner=PlannerConfig(embedder="jackard"))
    with pytest.raises(ConfigurationError, match="Did you mean 'jaccard'"):
        run_offline(OfflineRun(manifest=manifest, output=tmp_path / "r.json", config=config))


def test_a_resumed_run_says_what_was_already_done(
    manifest: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "r.json"
    with monkeypatch.context() as patched:
        interrupt_after(patched, 2)
        with pytest.raises(KeyboardInterrupt):
            run(manifest, output)
    capsys.readouterr()
    result = run(manifest, output, resume=True)
    total = len(result["requests"])
    assert f"offline replay: 2 of {total} already done, {total - 2} left\n" in capsys.readouterr().err
    run(manifest, output, resume=True, max_items=1)
    assert "offline replay: nothing to resume, starting with the first of 1\n" in capsys.readouterr().err


def test_with_fragments_the_embedder_adds_blocks_and_without_none(manifest: Path, tmp_path: Path) -> None:
    """ADR 3: by default the token path finds every run that may be planned."""
    by_default = ReplayConfig(planner=PlannerConfig(embedder="jaccard"))
    result = run_offline(OfflineRun(manifest=manifest, output=tmp_path / "r.json", config=by_default))
    assert result["aggregate"]["semantic_path_extra_candidate_blocks"] == 0
    loose = PlannerConfig(embedder="jaccard", exact_materialization_only=False, fuzzy_chunks=True)
    result = run_offline(
        OfflineRun(manifest=manifest, output=tmp_path / "loose.json", config=ReplayConfig(planner=loose))
    )
    assert result["aggregate"]["semantic_path_extra_candidate_blocks"] > 0
    assert result["aggregate"]["unverified_planned_token_rate"] == 0


def test_the_switches_reach_the_planner(manifest: Path, tmp_path: Path) -> None:
    output = tmp_path / "r.json"
    options = ["--semblend-fuzzy-chunks", "--semblend-fragments", "--max-items", "1"]
    assert main(["run-offline", "--manifest", str(manifest), "--output", str(output), *options]) == 0
    planner = json.loads(output.read_text())["config"]["planner"]
    assert planner["fuzzy_chunks"] is True
    assert planner["exact_materialization_only"] is False
