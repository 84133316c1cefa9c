"""One table type: precedence, unknown and removed names, sections, and the documentation made from the rows."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest

from sembase.errors import ConfigurationError
from sembase.settings import other_default, read_options, read_settings, reference_table, rows_of, section, setting
from sembase.values import count, flag, fraction, optional, path


@dataclass(frozen=True, slots=True)
class Limits:
    low: int = 1
    high: int = 9


@dataclass(frozen=True, slots=True)
class Example:
    environment_prefix: ClassVar[str] = "EXAMPLE_"
    removed: ClassVar[dict[str, str]] = {"speed": "nothing replaces it"}

    file: Path | None = setting(None, optional(path), "a file")
    loss: float = setting(0.5, fraction, "how much | may be lost")
    quiet: bool = setting(False, flag, "say nothing", variable="OLD_QUIET")
    limits: Limits = section(Limits(), {"high": (count, "the upper limit")})


@dataclass(frozen=True, slots=True)
class Stricter(Example):
    loss: float = other_default(Example, "loss", 0.1)


def test_flags_win_over_the_environment_over_the_document_over_the_default() -> None:
    sources: tuple[dict[str, Any], ...] = ({"loss": "0.1"}, {"EXAMPLE_LOSS": "0.2"}, {"loss": 0.3})
    for first, expected in enumerate((0.1, 0.2, 0.3, 0.5)):
        flags, environment, document = ({} if n < first else source for n, source in enumerate(sources))
        assert read_settings(Example, flags=flags, environment=environment, document=document).loss == expected


def test_a_section_keeps_what_is_not_given_and_takes_only_its_rows() -> None:
    assert read_options(Example, {"high": 5}, "here").limits == Limits(1, 5)
    with pytest.raises(ConfigurationError, match="here: 'low' is not an option; the nearest is"):
        read_options(Example, {"low": 5}, "here")


def test_a_removed_key_is_answered_with_what_replaced_it() -> None:
    with pytest.raises(ConfigurationError, match="here: speed was removed; nothing replaces it"):
        read_options(Example, {"speed": 5}, "here")


def test_a_bad_value_is_named_with_its_source_and_what_to_write() -> None:
    cases: tuple[tuple[dict[str, Any], str], ...] = (
        ({"flags": {"loss": "2"}}, "--loss='2': expected a number between 0 and 1"),
        ({"environment": {"EXAMPLE_LOSS": "x"}}, "EXAMPLE_LOSS='x': expected a number"),
        ({"document": {"loss": True}, "where": "f: t"}, "f: t.loss=true: expected a number"),
    )
    for source, message in cases:
        with pytest.raises(ConfigurationError, match=message):
            read_settings(Example, **source)


def test_an_inherited_setting_may_have_another_default() -> None:
    (row,) = (row for row in rows_of(Stricter) if row.name == "loss")
    assert row.default == 0.1
    assert read_options(Stricter, {}, "here") == Stricter()


def test_the_reference_shows_every_row_with_its_default() -> None:
    assert reference_table(Example, ("TOML key (flag)", "Environment", "Default", "Description")).splitlines() == [
        "| TOML key (flag) | Environment | Default | Description |",
        "|---|---|---|---|",
        "| `file` (`--file`) | `EXAMPLE_FILE` | `none` | a file |",
        "| `loss` (`--loss`) | `EXAMPLE_LOSS` | `0.5` | how much \\| may be lost |",
        "| `quiet` (`--quiet`) | `OLD_QUIET` | `false` | say nothing |",
        "| `high` (`--high`) | `` | `9` | the upper limit |",
    ]
