"""What is written to the fleet: content that came back where it had to be computed again."""

from __future__ import annotations

import numpy as np
import pytest
from tests.unit.semblend.fleet.fleet_donors import KEYS, SECRET, tokens_of

from semblend.fleet.admission import SeenContent, mark_content
from semblend.fleet.directory.memory import MemoryDirectory
from semblend.fleet.keys import SpaceKeys

DOCUMENT = tokens_of(1, 4_000)


@pytest.fixture
def directory() -> MemoryDirectory:
    return MemoryDirectory()


def framed(seed: int) -> np.ndarray:
    return np.concatenate([tokens_of(seed, 70), DOCUMENT, tokens_of(seed + 100, 40)])


def test_the_second_prompt_with_the_same_content_is_worth_writing_wherever_it_occurs(
    directory: MemoryDirectory,
) -> None:
    assert not mark_content(directory, KEYS, framed(2)).is_worth_writing(0)
    assert mark_content(directory, KEYS, framed(3)).is_worth_writing(0)
    assert not mark_content(directory, KEYS, tokens_of(4, 4_000)).is_worth_writing(0)


def test_content_before_the_computed_part_does_not_count(directory: MemoryDirectory) -> None:
    mark_content(directory, KEYS, framed(2))
    seen = mark_content(directory, KEYS, framed(3))
    assert seen.is_worth_writing(1_000)
    assert not seen.is_worth_writing(len(framed(3)) - 100)


def test_tenants_do_not_see_each_others_content(directory: MemoryDirectory) -> None:
    mark_content(directory, KEYS, DOCUMENT)
    assert not len(mark_content(directory, SpaceKeys.derive(SECRET, "tenant two"), DOCUMENT).positions)


def test_a_prompt_that_repeats_itself_has_not_been_seen(directory: MemoryDirectory) -> None:
    twice = np.concatenate([DOCUMENT, DOCUMENT])
    assert not len(mark_content(directory, KEYS, twice).positions)


def test_a_prompt_without_anchors_leaves_no_mark(directory: MemoryDirectory) -> None:
    assert not len(mark_content(directory, KEYS, tokens_of(1, 10)).positions)


def test_about_one_of_eight_anchors_is_marked(directory: MemoryDirectory) -> None:
    mark_content(directory, KEYS, DOCUMENT)
    marks = len(mark_content(directory, KEYS, DOCUMENT).positions)
    assert 10 < marks < 60, "4,000 tokens have about 236 anchors"


def test_the_estimate_of_seen_tokens_is_in_tokens() -> None:
    assert not SeenContent(np.arange(3) * 100).is_worth_writing(0)
    assert SeenContent(np.arange(4) * 100).is_worth_writing(0)
