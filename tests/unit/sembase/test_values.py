"""Parsers: text and JSON values to typed ones, and messages that say what to write."""

from __future__ import annotations

import argparse
import contextlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sembase import values
from sembase.values import InvalidValueError, Parser

PARSERS = [each for each in vars(values).values() if isinstance(each, Parser)]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)


@pytest.mark.parametrize(
    ("parser", "text", "value"),
    [
        (values.flag, " Yes", True),
        (values.flag, "off", False),
        (values.count, "0", 0),
        (values.whole(3), "7", 7),
        (values.fraction, "1", 1.0),
        (values.rate, "0.5", 0.5),
        (values.capacity, "5k", 5_000),
        (values.capacity, "2M", 2_000_000),
        (values.size(1), "8GiB", 8 << 30),
        (values.size(1), " 1.5 MiB ", 3 << 19),
        (values.size(1), "4096", 4096),
        (values.name, "Least-Loaded", "least_loaded"),
        (values.words, "a, b,,c ", ("a", "b", "c")),
        (values.origin, "http://h:1/v1/", "http://h:1"),
        (values.optional(values.path), "", None),
        (values.optional(values.path), "a/b", Path("a/b")),
        (values.log_level, "INFO", "info"),
    ],
)
def test_text_is_read(parser: Parser[Any], text: str, value: object) -> None:
    assert parser(text) == value


@pytest.mark.parametrize(
    ("parser", "text", "message"),
    [
        (values.whole(1), "0", "expected a whole number of at least 1, got '0'"),
        (values.port, "70000", "expected a port between 0 and 65535, got '70000'"),
        (values.amount, "inf", "expected a finite number of at least 0, got 'inf'"),
        (values.rate, "0", "expected a finite number above 0, got '0'"),
        (values.fraction, "nan", "expected a number between 0 and 1, got 'nan'"),
        (values.positive_fraction, "0", "expected a number above 0 and at most 1, got '0'"),
        (values.capacity, "1.5", "expected a whole number of at least 1, such as 5000, 5k or 2M, got '1.5'"),
        (values.size(1 << 20), "8GB", "expected a number of bytes of at least 1048576, such as \"8GiB\", got '8GB'"),
        (values.size(1 << 20), "1KiB", "expected a number of bytes of at least 1048576, such as \"8GiB\", got '1KiB'"),
        (values.one_of("a", "b"), "c", 'expected one of "a", "b", got \'c\''),
    ],
)
def test_a_flag_with_a_bad_value_says_what_was_expected(parser: Parser[Any], text: str, message: str) -> None:
    command = argparse.ArgumentParser(exit_on_error=False)
    command.add_argument("--x", type=parser)
    with pytest.raises(argparse.ArgumentError) as refused:
        command.parse_args(["--x", text])
    assert str(refused.value) == f"argument --x: {message}"


def test_in_json_a_quoted_number_is_not_a_number() -> None:
    assert values.fraction.from_json(1) == 1.0
    for value, message in (("0.5", 'between 0 and 1, without quotes, got "0.5"'), (True, "got true")):
        with pytest.raises(InvalidValueError, match=message):
            values.fraction.from_json(value)


def test_a_size_in_json_is_bytes_or_text_with_a_unit() -> None:
    parser = values.size(1)
    assert [parser.from_json(given) for given in (4096, "4096", "8GiB")] == [4096, 4096, 8 << 30]
    for refused in (True, 1.5, "8 GiBs", "", None):
        with pytest.raises(InvalidValueError, match="a number of bytes of at least 1"):
            parser.from_json(refused)


def test_a_bad_header_does_not_show_its_value() -> None:
    assert values.header("A: b:c ") == ("A", "b:c")
    with pytest.raises(InvalidValueError, match="form 'Name: value'") as refused:
        values.header(": secret")
    assert "secret" not in str(refused.value)


@given(st.text(max_size=20), JSON)
def test_parsers_raise_nothing_but_the_value_error(text: str, value: object) -> None:
    for parser in PARSERS:
        with contextlib.suppress(InvalidValueError):
            parser(text)
        with contextlib.suppress(InvalidValueError):
            parser.from_json(value)
