"""What the doctor says of a model's answer budgets."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import structs

from sembase.errors import ConfigurationError
from semblend.contract import PlanShape
from semblend.contract.answer_budgets import FILE_NAME, AnswerBudgets, Budget, Trial, encode_budgets
from semblend.contract.model_folder import weights_mark
from semblend.doctor.measured_answers import describe_budgets
from semblend.integration.vllm.options import ConnectorOptions, parse_options


def test_the_report_says_what_is_served_and_what_is_wrong_with_a_file(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    options = ConnectorOptions()
    assert "kvmend bench answer-budgets" in describe_budgets(options, options.gates, "vllm", str(tmp_path))
    budgets = (
        Budget(PlanShape.REORDER, 2048, 4096, 640, (Trial(0.05, 100, 100, 9), Trial(0.2, 100, 100, 0))),
        Budget(PlanShape.COMPOSITION, 2048, 4096, 640, (Trial(0.2, 100, 100, 9),)),
    )
    measured = AnswerBudgets("m", weights_mark(tmp_path), "vllm", options.recompute_policy, budgets)
    (tmp_path / FILE_NAME).write_text(encode_budgets(measured))
    summary = describe_budgets(options, options.gates, "vllm", str(tmp_path))
    assert summary == "reorder up to 4,096 tokens 20 % recomputed; composition up to 4,096 tokens declined"
    (tmp_path / FILE_NAME).write_text(encode_budgets(structs.replace(measured, policy="first")))
    assert "measured with recompute_policy first" in describe_budgets(options, options.gates, "vllm", str(tmp_path))
    named = parse_options({"answer_budgets": str(tmp_path / FILE_NAME)})
    with pytest.raises(ConfigurationError):
        describe_budgets(named, named.gates, "vllm", str(tmp_path))
