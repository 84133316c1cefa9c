"""Packed prompts are the prompts that were kept; which of them are held is decided by a plain list."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semestimate.causes import Prompt
from semestimate.recent import PER_SESSION, PROMPT_BYTES, RecentPrompts


def prompt(seed: int, blocks: int, *, is_text: bool) -> Prompt:
    rng = np.random.default_rng(seed)

    def keys() -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
        return rng.integers(0, 2**64, blocks, np.uint64)

    own = keys()
    return Prompt(
        keys=own,
        tokens=rng.integers(0, 900, blocks).astype(np.int32),
        labels=rng.integers(0, 8, blocks).astype(np.uint8),
        shapes=keys() if is_text else None,
        contents=keys() if is_text else own,
        tools={0: (1, 2)} if is_text and blocks else {},
        shows="any_position" if is_text else "block",
        grew=seed % 2 == 0,
    )


def as_lists(each: Prompt) -> list[object]:
    arrays = (each.keys, each.tokens, each.labels, each.contents)
    shapes = None if each.shapes is None else each.shapes.tolist()
    return [*(array.tolist() for array in arrays), shapes, dict(each.tools), each.shows, each.grew]


@settings(deadline=None)
@given(
    kept=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 12), st.booleans()), max_size=60),
    max_prompts=st.sampled_from([3, 20, 10_000]),
)
def test_the_last_of_each_session_are_held_as_they_were(kept: list[tuple[int, int, bool]], max_prompts: int) -> None:
    max_bytes = max_prompts * PROMPT_BYTES
    recent = RecentPrompts(max_bytes)
    expected: list[tuple[int, str | None, Prompt, int]] = []  # number, session, prompt, bytes
    for number, (session, blocks, is_text) in enumerate(kept):
        name = f"s{session}" if session else None
        given_prompt = prompt(number, blocks, is_text=is_text)
        recent.keep(given_prompt, number, None if name is None else ("t", name))
        expected.append((number, name, given_prompt, PROMPT_BYTES + blocks * (29 if is_text else 13)))
        own = [each for each in expected if name is not None and each[1] == name]
        if len(own) > PER_SESSION:
            expected.remove(own[0])
        while sum(each[3] for each in expected) > max_bytes and len(expected) > 1:
            expected.pop(0)
        for other in ("s1", "s2", "s3"):
            wanted = [as_lists(each[2]) for each in reversed(expected) if each[1] == other]
            assert recent.has_session(("t", other)) == bool(wanted)
            assert [as_lists(each) for each in recent.of_session(("t", other))] == wanted
        numbers = [number, 0, 1, number]
        held = {each[0]: each[2] for each in expected}
        wanted = [as_lists(held[each]) for each in reversed(dict.fromkeys(numbers)) if each in held]
        assert [as_lists(each) for each in recent.numbered(numbers)] == wanted


@pytest.mark.parametrize("is_text", [True, False])
def test_many_short_prompts_stay_within_the_limit(is_text: bool) -> None:
    recent = RecentPrompts(max_bytes=100 * PROMPT_BYTES)
    for number in range(1000):
        recent.keep(prompt(number, 2, is_text=is_text), number, ("t", f"s{number}"))
    held = [number for number in range(1000) if recent.has_session(("t", f"s{number}"))]
    assert held == list(range(1000 - len(held), 1000))
    assert 80 < len(held) < 100
