"""Experiment files: what is accepted, and the one line that says what is wrong with the rest."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from semantic_kv.experiment.config import FileSource, PolicyChoice, WorkloadSource
from semantic_kv.experiment.config_file import load_config, parse_config
from semantic_kv.workload import STRESS, WORKLOADS
from sembase.errors import ConfigurationError

CONFIGS = Path(__file__).parents[3] / "configs" / "experiments"
SMALL: dict[str, Any] = {
    "experiment": "small",
    "description": "two  words\nand more",
    "source": {"workload": "low_memory_rag_stress", "sessions": 4, "requests_per_session": 3},
    "unit": "tokens",
    "capacities": [2700],
    "policies": ["lru", "lru+not_user_when_full", {"evict": "lru", "admit": "tinylfu"}],
}


def changed(path: str, value: object) -> dict[str, Any]:
    """SMALL with one value set; a dot leads into a mapping, a value of None takes the key away."""
    config = copy.deepcopy(SMALL)
    inner = config
    *above, last = path.split(".")
    for key in above:
        inner = inner.setdefault(key, {})
    if value is None:
        del inner[last]
    else:
        inner[last] = value
    return config


def test_a_small_experiment() -> None:
    config = parse_config(SMALL, "small.yaml")
    assert config.source == WorkloadSource("low_memory_rag_stress", 4, 3)
    assert config.description == "two words and more"
    assert config.policies[1] == PolicyChoice("lru", "not_user_when_full")
    assert [choice.name for choice in config.choices()] == ["lru", "lru+not_user_when_full", "lru+tinylfu"]
    assert config.models == ("prefix_tree", "block_set")
    assert config.latency.base_ms == 80.0


def test_the_baseline_is_always_among_the_choices() -> None:
    config = parse_config(changed("policies", ["fifo"]), "x")
    assert config.choices()[0] == PolicyChoice("lru")


def test_the_ablation_crosses_both_axes_without_repetition() -> None:
    config = parse_config({**SMALL, "ablation": {"admit": ["always", "second_use"], "evict": ["lru", "fifo"]}}, "x")
    names = [choice.name for choice in config.choices()]
    assert {"lru", "lru+second_use", "fifo", "fifo+second_use"} <= set(names)
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("capacites", [1], "unknown key 'capacites'; did you mean 'capacities'?"),
        ("source.session", 3, "source: unknown key 'session'; did you mean 'sessions'?"),
        ("unit", "token", "unknown 'token'; known: blocks, tokens. Did you mean 'tokens'?"),
        ("policies", ["lru", "lur"], "policies entry 2: unknown 'lur'"),
        ("policies", ["lru+second"], "Did you mean 'second_use'?"),
        ("policies", ["lru", "lru"], "policies: an entry occurs twice"),
        ("policies", [], "expected a list with at least one entry"),
        ("policies", [{"evict": "lru", "option": {}}], "unknown key 'option'"),
        ("capacities", [0], "expected a whole number of at least 1, got 0"),
        ("capacities", [2.5], "expected a whole number of at least 1, got 2.5"),
        ("capacities", [True], "expected a whole number of at least 1, got true"),
        ("experiment", "../elsewhere", "may contain only lower-case letters"),
        ("experiment", None, "'experiment' is missing"),
        ("source.workload", "low_memory_rag", "Did you mean 'low_memory_rag_stress'?"),
        ("source.path", "x.jsonl", "either 'workload' (generated) or 'path'"),
        ("latency.base_ms", -1, "expected a finite number of at least 0, got -1"),
        ("latency.base_ms", 80, "'ms_per_uncached_token' is missing"),
        (
            "curve",
            {"policies": ["lru"], "capacities": [1], "sample_rates": [1.5]},
            "expected a number above 0 and at most 1, got 1.5",
        ),
        ("bounds", 1, "expected true or false, got 1"),
        ("models", ["prefix"], "Did you mean 'prefix_tree'?"),
    ],
)
def test_what_is_refused_and_how(path: str, value: object, message: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        parse_config(changed(path, value), "x.yaml")
    assert message in str(error.value)
    assert str(error.value).startswith("x.yaml")
    assert "\n" not in str(error.value)


def test_a_misspelt_key_is_reported_where_the_right_one_is_missing() -> None:
    config = changed("capacitys", [1])
    del config["capacities"]
    with pytest.raises(ConfigurationError, match="'capacities' is missing; is 'capacitys' a misspelling of it"):
        parse_config(config, "x.yaml")


def test_a_file_that_is_no_yaml_is_one_line(tmp_path: Path) -> None:
    broken = tmp_path / "broken.yaml"
    broken.write_text("experiment: [unclosed\nb: c: d", encoding="utf-8")
    with pytest.raises(ConfigurationError, match="invalid YAML") as error:
        load_config(broken)
    assert "\n" not in str(error.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="does not exist"):
        load_config(tmp_path / "none.yaml")


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.yaml")), ids=lambda path: path.stem)
def test_our_experiment_files(path: Path) -> None:
    config = load_config(path)
    assert config.experiment == path.stem
    assert config.bounds
    assert config.curve is not None


@pytest.mark.parametrize("name", STRESS)
def test_the_stress_files_are_to_the_published_description(name: str) -> None:
    config, kind = load_config(CONFIGS / f"{name}.yaml"), WORKLOADS.get(name)
    assert config.source == WorkloadSource(name, kind.sessions, kind.requests_per_session)
    assert config.capacities == (kind.capacity_tokens,)
    assert config.seeds[0] == kind.seed
    assert len(config.seeds) >= 10
    assert config.models == ("prefix_tree", "block_set")
    assert config.published is not None
    six = {"fifo", "lru", "lfu", "size_aware_lru", "static_semantic+score", "adaptive_semantic+score"}
    assert six <= {choice.name for choice in config.policies}


def test_the_published_gains_are_those_of_the_original() -> None:
    gains = {name: load_config(CONFIGS / f"{name}.yaml").published for name in STRESS}
    shown = {name: f"{100 * each.gain:.2f}" for name, each in gains.items() if each is not None}
    assert shown["low_memory_rag_stress"] == "35.66"
    assert shown["workload_shift_static_vs_adaptive"] == "19.86"
    assert shown["tool_agent_session_reuse"] == "-1.14"
    assert shown["legal_review_long_context"] == "-1.40"


def test_real_trace_studies_name_a_file() -> None:
    for name in ("mooncake", "claude_code"):
        assert isinstance(load_config(CONFIGS / f"{name}.yaml").source, FileSource)
