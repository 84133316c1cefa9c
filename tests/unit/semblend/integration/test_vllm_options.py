from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sembase.errors import ConfigurationError
from sembase.settings import reference_table, rows_of
from semblend.integration.vllm.options import ConnectorOptions, parse_options
from semblend.plan.gates import ADAPTER_GATES, Gates


def test_nothing_given_gives_the_documented_defaults() -> None:
    options = parse_options({})
    assert options == ConnectorOptions()
    assert (
        options.gates
        == ADAPTER_GATES
        == Gates(min_inexact_tokens=768, boundary_recompute_tokens=64, max_context_share=0.35)
    )
    assert {option.name: option.default for option in rows_of(ConnectorOptions)} == {
        "host_bytes": 2147483648,
        "index_bytes": 268435456,
        "capture": "all",
        "capture_fraction": 0.1,
        "min_capture_tokens": 128,
        "capture_step_tokens": 2048,
        "events": None,
        "require_salt": False,
        "prefill_passages": True,
        "cached_donors": True,
        "repair": "off",
        "fleet_store": None,
        "fleet_directory": None,
        "fleet_key_file": None,
        "fleet_store_bytes": 1099511627776,
        "fleet_wait_seconds": 2.0,
        "experimental_gpu": False,
        "gpu_evidence": None,
        "refresh_on_repeat": True,
        "recompute_all": False,
        "verify_loads": True,
        "recompute_policy": "question",
        "recompute_fraction": None,
        "recompute_bridge_tokens": 0,
        "answer_budgets": "auto",
        "max_answer_loss": 0.02,
        "guard_verdicts": None,
        "min_run_tokens": 64,
        "min_reuse_ratio": 0.1,
        "boundary_recompute_tokens": 64,
        "max_context_share": 0.35,
        "min_moved_tokens": 0,
        "min_inexact_tokens": 768,
        "min_prompt_tokens": 64,
        "boundary_multiple_tokens": 1,
    }


@pytest.mark.parametrize(
    ("name", "value", "read"),
    [
        ("host_bytes", 1 << 30, 1 << 30),
        ("host_bytes", "8GiB", 8 << 30),
        ("index_bytes", 1 << 22, 1 << 22),
        ("capture", "hinted", "hinted"),
        ("capture_fraction", 1, 1.0),
        ("min_capture_tokens", 1, 1),
        ("capture_step_tokens", 512, 512),
        ("events", "run/events.jsonl", Path("run/events.jsonl")),
        ("events", None, None),
        ("require_salt", True, True),
        ("prefill_passages", False, False),
        ("refresh_on_repeat", False, False),
    ],
)
def test_each_key_fills_its_option(name: str, value: Any, read: Any) -> None:
    assert getattr(parse_options({name: value}), name) == read


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("min_run_tokens", 100),
        ("min_reuse_ratio", 0.5),
        ("boundary_recompute_tokens", 0),
        ("max_context_share", 0.25),
        ("min_moved_tokens", 640),
        ("min_inexact_tokens", 128),
        ("min_prompt_tokens", 1000),
    ],
)
def test_gate_keys_fill_the_gates_and_leave_the_others(name: str, value: Any) -> None:
    gates = parse_options({name: value}).gates
    assert getattr(gates, name) == value
    changed = {field for field in Gates.__slots__ if getattr(gates, field) != getattr(ADAPTER_GATES, field)}
    assert changed == {name}


@pytest.mark.parametrize(
    ("name", "value", "advice"),
    [
        ("host_bytes", "2 gigs", "number of bytes"),
        ("host_bytes", 2e9, "number of bytes"),
        ("host_bytes", True, "number of bytes"),
        ("host_bytes", 1000, "at least 1048576"),
        ("index_bytes", 0, "at least"),
        ("capture", "some", '"all", "sampled", "hinted"'),
        ("capture", ["all"], '"all", "sampled", "hinted"'),
        ("capture_fraction", 1.5, "between 0 and 1"),
        ("capture_fraction", float("nan"), "between 0 and 1"),
        ("capture_fraction", "0.5", "without quotes"),
        ("min_capture_tokens", 0, "at least 1"),
        ("capture_step_tokens", -1, "at least 1"),
        ("events", "", "path of a file"),
        ("events", 7, "path of a file"),
        ("require_salt", "true", "true or false"),
        ("refresh_on_repeat", 1, "true or false"),
        ("min_run_tokens", 0, "at least 1"),
        ("boundary_recompute_tokens", -1, "at least 0"),
        ("max_context_share", 2, "between 0 and 1"),
        ("min_reuse_ratio", -0.1, "between 0 and 1"),
        ("min_prompt_tokens", None, "whole number"),
    ],
)
def test_a_bad_value_names_the_key_and_says_what_to_write(name: str, value: Any, advice: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{name}=.*{advice}"):
        parse_options({name: value})


def test_the_fleet_is_off_by_default_and_its_places_belong_together() -> None:
    assert not parse_options({}).fleet.is_on
    places = {"fleet_store": "file:///mnt/kv", "fleet_directory": "valkey://here:6379", "fleet_key_file": "key"}
    assert parse_options(places).fleet.is_on
    for name in places:
        with pytest.raises(ConfigurationError, match=f"belong together; set {name} as well"):
            parse_options({key: value for key, value in places.items() if key != name})


@pytest.mark.parametrize(
    ("wrong", "near"),
    [("host_byte", "host_bytes"), ("refresh_repeat", "refresh_on_repeat"), ("min_run", "min_run_tokens")],
)
def test_an_unknown_key_is_refused_with_the_nearest(wrong: str, near: str) -> None:
    with pytest.raises(ConfigurationError, match=f"'{wrong}' is not an option.*'{near}'"):
        parse_options({wrong: 1})


def test_the_reference_table_documents_every_key_once() -> None:
    rows = reference_table(ConnectorOptions).splitlines()[2:]
    assert [row.split("`")[1] for row in rows] == [option.name for option in rows_of(ConnectorOptions)]
    assert all(row.count("|") == 4 for row in rows)


def test_an_option_that_is_gone_names_what_replaced_it() -> None:
    with pytest.raises(ConfigurationError, match="max_predicted_kl was removed; measure answers with"):
        parse_options({"max_predicted_kl": 0.02})
