"""Where a server finds its answer budgets, and which ones it does not use."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from sembase.errors import ConfigurationError
from semblend.contract import PlanShape
from semblend.contract.answer_budgets import FILE_NAME, AnswerBudgets, Budget, Trial, encode_budgets
from semblend.contract.model_folder import weights_mark
from semblend.integration.answer_budgets import NONE, open_budgets, with_budgets
from semblend.integration.vllm.options import ConnectorOptions, parse_options
from semblend.plan.gates import ADAPTER_GATES

LOG = logging.getLogger("test.answer_budgets")
REORDERED = Budget(PlanShape.REORDER, 2048, 4096, 700, (Trial(0.1, 100, 100, 0),))


@pytest.fixture
def model(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    return tmp_path


def measured(model: Path) -> AnswerBudgets:
    return AnswerBudgets("m", weights_mark(model), "vllm", ConnectorOptions().recompute_policy, (REORDERED,))


def opened(options: ConnectorOptions, model: str, engine: str = "vllm") -> AnswerBudgets | None:
    return open_budgets(options, options.gates, engine, model, LOG)


def written(model: Path, name: str = FILE_NAME, budgets: AnswerBudgets | None = None) -> Path:
    path = model / name
    path.write_text(encode_budgets(budgets or measured(model)))
    return path


def test_the_file_in_the_models_folder_is_found(model: Path) -> None:
    assert opened(ConnectorOptions(), str(model)) is None
    written(model)
    assert opened(ConnectorOptions(), str(model)) == measured(model)
    assert opened(parse_options({"answer_budgets": NONE}), str(model)) is None
    assert opened(ConnectorOptions(), "a-name/of-a-hub") is None


def test_a_fraction_that_the_deployment_sets_is_not_overruled_by_a_file_that_was_found(model: Path) -> None:
    path = written(model)
    for own in (
        {"recompute_fraction": 0.3},
        {"min_moved_tokens": 900},
        {"boundary_recompute_tokens": 0},
        {"recompute_bridge_tokens": 64},
        {"max_context_share": 0.5},
    ):
        assert opened(parse_options(own), str(model)) is None
    named = parse_options({"recompute_fraction": 0.3, "answer_budgets": str(path)})
    assert opened(named, str(model)) == measured(model)


@pytest.mark.parametrize("what", ["weights", "policy", "engine", "damaged"])
def test_a_wrong_file_is_left_out_if_found_and_stops_the_start_up_if_named(
    model: Path, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    wrong = {
        "weights": structs.replace(measured(model), weights="other"),
        "policy": structs.replace(measured(model), policy="first"),
        "engine": structs.replace(measured(model), engine="sglang"),
        "damaged": measured(model),
    }[what]
    path = written(model, budgets=wrong)
    if what == "damaged":
        path.write_text("{")
    assert opened(ConnectorOptions(), str(model)) is None
    assert f"does not use {path}" in caplog.text
    with pytest.raises(ConfigurationError):
        opened(parse_options({"answer_budgets": str(path)}), str(model))
    with pytest.raises(ConfigurationError, match="No such file"):
        opened(parse_options({"answer_budgets": str(model / "no.json")}), str(model))


def test_budgets_of_a_model_that_cannot_be_compared_are_used_with_a_warning(
    model: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = written(model, "elsewhere.json", structs.replace(measured(model), weights=None))
    found = opened(parse_options({"answer_budgets": str(path)}), "a-name/of-a-hub")
    assert found is not None
    assert "is not known" in caplog.text


def test_moved_passages_reach_the_gate_only_with_budgets_and_never_below_what_an_operator_set(model: Path) -> None:
    assert with_budgets(ADAPTER_GATES, None, 0.02) == ADAPTER_GATES
    assert with_budgets(ADAPTER_GATES, measured(model), 0.02).min_moved_tokens == 700
    set_by_hand = replace(ADAPTER_GATES, min_moved_tokens=900)
    assert with_budgets(set_by_hand, measured(model), 0.02) == set_by_hand
