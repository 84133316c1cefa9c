from __future__ import annotations

import re
from pathlib import Path

import pytest

from sembase.errors import ConfigurationError
from sembase.settings import rows_of
from semblend.settings import Settings, as_environment

SOURCE = Path(__file__).parents[3] / "src" / "semblend"


def test_the_documented_variables_and_their_defaults() -> None:
    assert {row.variable: row.default_text() for row in rows_of(Settings)} == {
        "SEMBLEND_ENABLED": "true",
        "SEMBLEND_MIN_SIMILARITY": "0.6",
        "SEMBLEND_EMBEDDER": "auto",
        "SEMBLEND_FUZZY_CHUNKS": "false",
        "SEMBLEND_DISCOVERY_ONLY": "false",
        "SEMBLEND_STRICT_PREFIX_BOUNDARY": "true",
        "SEMBLEND_EXACT_MATERIALIZATION_ONLY": "true",
        "SEMBLEND_DONOR_EVENTS": "none",
        "SEMBLEND_DONOR_EVENTS_KEY_FILE": "none",
        "SEMBLEND_DONOR_EVENTS_CURVE_KEY_FILE": "none",
        "SEMBLEND_DONOR_EVENTS_CURVE_CLIENTS": "none",
        "SEMBLEND_DONOR_EVENTS_BUFFER": "10000",
    }
    assert Settings.from_environment({}) == Settings()


@pytest.mark.parametrize(
    ("name", "text", "field", "value"),
    [
        ("SEMBLEND_ENABLED", "0", "enabled", False),
        ("SEMBLEND_MIN_SIMILARITY", "0.75", "min_similarity", 0.75),
        ("SEMBLEND_EMBEDDER", "ONNX-GPU", "embedder", "onnx_gpu"),
        ("SEMBLEND_FUZZY_CHUNKS", "true", "fuzzy_chunks", True),
        ("SEMBLEND_DISCOVERY_ONLY", "on", "discovery_only", True),
        ("SEMBLEND_STRICT_PREFIX_BOUNDARY", "no", "strict_prefix_boundary", False),
        ("SEMBLEND_EXACT_MATERIALIZATION_ONLY", "0", "exact_materialization_only", False),
        ("SEMBLEND_DONOR_EVENTS_KEY_FILE", "key", "donor_events_key_file", Path("key")),
        ("SEMBLEND_DONOR_EVENTS_BUFFER", "8", "donor_events_buffer", 8),
    ],
)
def test_each_variable_fills_its_setting(name: str, text: str, field: str, value: object) -> None:
    settings = Settings.from_environment({name: text})
    assert getattr(settings, field) == value
    assert settings != Settings()


@pytest.mark.parametrize(
    "assignment",
    [
        "SEMBLEND_ENABLED=maybe",
        "SEMBLEND_MIN_SIMILARITY=1.5",
        "SEMBLEND_MIN_SIMILARITY=x",
        "SEMBLEND_DONOR_EVENTS_BUFFER=0",
        "SEMBLEND_DONOR_EVENTS=5657",
        "SEMBLEND_DONOR_EVENTS=tcp://*:*",
        "SEMBLEND_DONOR_EVENTS=nats://127.0.0.1:4222",
        "SEMBLEND_DONOR_EVENTS=http://127.0.0.1:4222",
    ],
)
def test_a_bad_value_names_the_variable(assignment: str) -> None:
    name, _, value = assignment.partition("=")
    with pytest.raises(ConfigurationError, match=name):
        Settings.from_environment({name: value})


def test_donors_are_announced_with_a_key_or_not_at_all() -> None:
    endpoint = {"SEMBLEND_DONOR_EVENTS": "tcp://*:5657"}
    with pytest.raises(ConfigurationError, match="SEMBLEND_DONOR_EVENTS_KEY_FILE"):
        Settings.from_environment(endpoint)
    assert Settings.from_environment({**endpoint, "SEMBLEND_DONOR_EVENTS_KEY_FILE": "key"}).donor_events


def test_an_unknown_name_warns_with_the_nearest() -> None:
    with pytest.warns(UserWarning, match="SEMBLEND_ENABLD.*SEMBLEND_ENABLED"):
        Settings.from_environment({"SEMBLEND_ENABLD": "0"})


def test_settings_can_be_given_to_a_process_that_is_started() -> None:
    environment = as_environment(embedder="none", enabled="0")
    assert environment == {"SEMBLEND_EMBEDDER": "none", "SEMBLEND_ENABLED": "0"}
    assert Settings.from_environment(environment).embedder == "none"


def test_no_other_module_reads_or_names_a_variable() -> None:
    for path in SOURCE.rglob("*.py"):
        names = re.findall(r"SEMBLEND_[A-Z_]+", path.read_text())
        assert path.name == "settings.py" or not names, f"{path} names {names}"
