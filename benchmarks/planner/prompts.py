"""Prompts whose reusable part is known by construction, so that what a planner found can be scored."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from benchmarks.planner.tokens import DONOR_TOKENS, Tokens, TokenSource

INSTRUCTION_TOKENS = 64
FRESH_INSTRUCTION_TOKENS = 48
PIECES = 6
HIT_CASES = ("instruction", "shifted_7", "reordered")
CASES = (*HIT_CASES, "new_tail", "miss", "head_only", "composed")

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Prompt:
    """``donor_of[i]`` and ``position_of[i]`` say where token ``i`` was copied from; -1 where it is new."""

    tokens: Tokens
    donor_of: npt.NDArray[np.int64]
    position_of: npt.NDArray[np.int64]

    @property
    def reusable(self) -> Mask:
        """Copied positions, without the last token, which every plan leaves to the engine."""
        mask = self.donor_of >= 0
        mask[-1] = False
        return mask


class PromptMaker:
    """Builds the prompts of one case against ``donor_count`` registered donors."""

    def __init__(self, source: TokenSource, donor_count: int, seed: int = 11) -> None:
        self._source = source
        self._donors = donor_count
        self._random = np.random.default_rng(seed)
        self._fresh_key = seed << 8

    def make(self, case: str, prompt_tokens: int) -> Prompt:
        """``prompt_tokens`` is honoured by ``miss`` and ``composed``; the others are about one donor long."""
        if case == "miss":
            return self._join([self._fresh(prompt_tokens)])
        if case == "head_only":
            head = self._source.head.size
            return self._join([self._copy(self._pick(), 0, head), self._fresh(DONOR_TOKENS - head)])
        if case == "composed":
            return self._composed(prompt_tokens)
        donor, head = self._pick(), self._source.head.size
        if case == "instruction":
            body = self._copy(donor, head + INSTRUCTION_TOKENS, DONOR_TOKENS)
            parts = [self._fresh(FRESH_INSTRUCTION_TOKENS), body]
            return self._join([self._copy(donor, 0, head), *parts] if head else parts)
        if case == "shifted_7":
            return self._join([self._fresh(7), self._copy(donor, 0, DONOR_TOKENS - 7)])
        if case == "new_tail":  # every chunk stays on its grid: what rivals that cut a grid are built for
            keep = DONOR_TOKENS - INSTRUCTION_TOKENS
            return self._join([self._copy(donor, 0, keep), self._fresh(INSTRUCTION_TOKENS)])
        if case == "reordered":
            cuts = np.linspace(0, DONOR_TOKENS, PIECES + 1).astype(int)
            order = np.roll(self._random.permutation(PIECES), 1)
            return self._join([self._copy(donor, cuts[i], cuts[i + 1]) for i in order])
        raise ValueError(f"unknown case {case!r}; known: {', '.join(CASES)}")

    def _composed(self, prompt_tokens: int) -> Prompt:
        """A fresh instruction, then the bodies of as many different donors as fit."""
        parts = [self._fresh(FRESH_INSTRUCTION_TOKENS)]
        room = prompt_tokens - FRESH_INSTRUCTION_TOKENS
        while room > 0:
            length = min(room, DONOR_TOKENS - self._source.head.size)
            parts.append(self._copy(self._pick(), self._source.head.size, self._source.head.size + length))
            room -= length
        return self._join(parts)

    def _pick(self) -> int:
        return int(self._random.integers(self._donors))

    def _fresh(self, count: int) -> tuple[Tokens, int, int]:
        self._fresh_key += 1
        return self._source.fresh(self._fresh_key, count), -1, 0

    def _copy(self, donor: int, start: int, stop: int) -> tuple[Tokens, int, int]:
        return self._source.donors(donor, donor + 1)[0, start:stop], donor, int(start)

    @staticmethod
    def _join(parts: list[tuple[Tokens, int, int]]) -> Prompt:
        donors = [np.full(tokens.size, donor, dtype=np.int64) for tokens, donor, _ in parts]
        positions = [np.arange(start, start + tokens.size, dtype=np.int64) for tokens, _, start in parts]
        tokens = np.ascontiguousarray(np.concatenate([part[0] for part in parts]), dtype=np.uint32)
        return Prompt(tokens, np.concatenate(donors), np.concatenate(positions))
