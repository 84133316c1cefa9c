from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sembase.errors import ConfigurationError
from sembase.tokenizer import RecentCounts, open_tokenizer


@given(st.text())
def test_tokens_tile_the_text(text: str) -> None:
    tokens = open_tokenizer(None).encode(text)
    pieces = [text[a:b] for a, b in zip(tokens.starts, tokens.ends, strict=True)]
    assert "".join(pieces) == text
    assert all(pieces)


@given(st.text(), st.text())
def test_equal_ids_mean_equal_text(one: str, other: str) -> None:
    tokenizer = open_tokenizer(None)
    assert (tokenizer.encode(one).ids.tolist() == tokenizer.encode(other).ids.tolist()) == (one == other)


@given(st.text())
def test_ids_and_count_agree_with_the_encoding(text: str) -> None:
    for tokenizer in (open_tokenizer(None), open_tokenizer(None, counted_ids=True)):
        assert tokenizer.ids(text).tolist() == tokenizer.encode(text).ids.tolist()
        assert tokenizer.count(text) == len(tokenizer.ids(text))


def test_counted_ids_never_collide() -> None:
    tokenizer = open_tokenizer(None, counted_ids=True)
    assert tokenizer.ids("a b a").tolist() == [0, 1, 2]
    assert tokenizer.ids(" b\n a").tolist() == [1, 3, 2]


def test_ids_are_stable_and_small() -> None:
    """These very numbers: another process, machine or version must give the same manifest figures."""
    ids = open_tokenizer(None).encode("The ferry, 2048 t.").ids
    assert ids.tolist() == open_tokenizer(None).encode("The ferry, 2048 t.").ids.tolist()
    assert ids.tolist() == EXPECTED
    assert (ids >= 0).all()
    assert (ids < 2**31).all()


EXPECTED = [1432463950, 1197143697, 1388207151, 917397736, 1272067834, 9144231, 920875140]


def test_case_and_white_space_count() -> None:
    tokenizer = open_tokenizer(None)
    base = tokenizer.encode("one two. three").ids.tolist()
    for changed in ("One two. three", "one  two. three", "one two.\nthree"):
        assert tokenizer.encode(changed).ids.tolist() != base


def test_each_ideograph_is_a_token() -> None:
    assert len(open_tokenizer(None).encode("全国美国文学").ids) == 6


def test_characters_find_their_tokens() -> None:
    tokens = open_tokenizer(None).encode("alpha beta gamma")
    assert tokens.overlapping(6, 10).tolist() == [1]
    assert tokens.overlapping(4, 7).tolist() == [0, 1]
    assert tokens.overlapping(6, 6).tolist() == []


def test_a_models_tokenizer_comes_from_its_file(tmp_path: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    model = tokenizers.models.WordLevel({"alpha": 0, "beta": 1, "[UNK]": 2}, unk_token="[UNK]")
    made = tokenizers.Tokenizer(model)
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.enable_truncation(1)
    directory = tmp_path / "some-model"
    directory.mkdir()
    made.save(str(directory / "tokenizer.json"))
    for name in (directory, directory / "tokenizer.json"):
        tokenizer = open_tokenizer(str(name))
        tokens = tokenizer.encode("beta alpha gamma")
        assert tokens.ids.tolist() == [1, 0, 2]
        assert tokens.overlapping(5, 10).tolist() == [1]
        assert tokenizer.is_model_tokenizer
        assert tokenizer.name == "some-model/tokenizer.json"
        assert tokenizer.encode("").ids.tolist() == []


def test_what_is_no_tokenizer_is_refused_with_advice(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    with pytest.raises(ConfigurationError, match=r"run `hf download Qwen/Qwen2.5-7B-Instruct tokenizer\.json` once"):
        open_tokenizer("Qwen/Qwen2.5-7B-Instruct")
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ConfigurationError, match=r"cannot be loaded as a tokenizer\.json"):
        open_tokenizer(str(tmp_path))


def test_counts_of_recent_texts_are_those_of_the_tokenizer_and_bounded() -> None:
    counted: list[str] = []

    class Counter:
        def count(self, text: str) -> int:
            counted.append(text)
            return len(text.split())

    counts = RecentCounts(Counter(), max_texts=2)
    texts = ["a b", "a b", "c", "a b", "d e f", "c", "\ud800 x"]
    assert [counts.count(text) for text in texts] == [2, 2, 1, 2, 3, 1, 2]
    assert counted == ["a b", "c", "d e f", "c", "\ud800 x"]  # the least recently used was dropped
