from __future__ import annotations

import json
from pathlib import Path

import pytest

from sembase.errors import ConfigurationError
from sembase.settings import reference_table, rows_of
from semblend.integration.settings import hand_on, handed_on
from semblend.integration.sglang.options import (
    WHERE,
    SglangOptions,
    parse_options,
)
from semblend.plan.gates import ADAPTER_GATES


def test_nothing_given_means_every_default() -> None:
    assert parse_options("") == parse_options("{}") == SglangOptions()
    assert SglangOptions().gates == ADAPTER_GATES


def test_every_key_takes_its_own_default_and_is_documented() -> None:
    given = {option.name: option.default for option in rows_of(SglangOptions)}
    assert parse_options(json.dumps(given)) == SglangOptions()
    assert all(f"`{option.name}`" in reference_table(SglangOptions) for option in rows_of(SglangOptions))


def test_values_reach_options_and_gates() -> None:
    options = parse_options('{"events": "e.jsonl", "max_holes": 3, "min_run_tokens": 96}')
    assert (options.events, options.max_holes, options.gates.min_run_tokens) == (Path("e.jsonl"), 3, 96)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON"),
        ("[]", "expected a JSON object, got list"),
        ('{"max_hole": 1}', "the nearest is 'max_holes'"),
        ('{"max_holes": 0}', "at least 1"),
        ('{"require_salt": "yes"}', "true or false"),
        ('{"min_reuse_ratio": 2}', "between 0 and 1"),
    ],
)
def test_what_is_wrong_is_refused_with_what_to_write(text: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message) as refused:
        parse_options(text)
    assert str(refused.value).startswith(WHERE)


def test_the_engine_reads_what_the_launcher_hands_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(WHERE, "")
    hand_on(WHERE, '{"max_holes": 5}')
    assert parse_options(handed_on(WHERE)).max_holes == 5
