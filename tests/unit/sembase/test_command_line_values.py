"""A flag is taken out of another program's command line."""

from __future__ import annotations

import pytest

from sembase.command_line import take_value
from sembase.errors import ConfigurationError


@pytest.mark.parametrize(
    ("words", "value", "rest"),
    [
        ("--model-path m --port 1", "m", "--port 1"),
        ("x --model-path=m=n --page-size 16", "m=n", "x --page-size 16"),
        ("--model_path m", "m", ""),
        ("--model-path a --port 1 --model-path=b", "b", "--port 1"),
        ("--model-path --port", "--port", ""),
        ("model-path m --model-paths m", None, "model-path m --model-paths m"),
        ("", None, ""),
    ],
)
def test_the_last_value_is_taken_and_no_other_word(words: str, value: str | None, rest: str) -> None:
    left = words.split()
    assert take_value(left, "--model-path") == value
    assert left == rest.split()


def test_without_a_value_nothing_is_removed() -> None:
    words = ["--device=cpu", "--device"]
    with pytest.raises(ConfigurationError, match="--device needs a value"):
        take_value(words, "--device")
    assert words == ["--device=cpu", "--device"]
