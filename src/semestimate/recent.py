"""Recent prompts to compare the next ones with: the last of each session, packed, in bounded memory.

A prompt is kept as one string of bytes and unpacked when it is compared, because arrays of a few blocks cost more than
the blocks in them. When ``max_bytes`` are held, the oldest prompts are forgotten first.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sembase.trace.record import VisibleReuse
from semestimate.causes import Prompt

PER_SESSION: Final = 8
MAX_BYTES: Final = 128 << 20
PROMPT_BYTES: Final = 512  # of a prompt besides its blocks: entries of dictionaries and lists, names
Session = tuple[str | None, str]
_NO_TOOLS: Final[Mapping[int, tuple[int, ...]]] = {}


class _Packed(NamedTuple):
    columns: bytes
    blocks: int
    is_text: bool
    tools: Mapping[int, tuple[int, ...]]
    shows: VisibleReuse
    grew: bool
    session: Session | None

    @property
    def held_bytes(self) -> int:
        return len(self.columns) + PROMPT_BYTES


class RecentPrompts:
    """Prompts by number; those of a session by its name."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._prompts: OrderedDict[int, _Packed] = OrderedDict()
        self._sessions: dict[Session, list[int]] = {}
        self._held = 0

    def has_session(self, session: Session) -> bool:
        return session in self._sessions

    def of_session(self, session: Session) -> Iterator[Prompt]:
        """The latest first."""
        return (_unpack(self._prompts[number]) for number in reversed(self._sessions.get(session, ())))

    def numbered(self, numbers: Iterable[int]) -> Iterator[Prompt]:
        """Those of the numbers that are still held, the last first."""
        held = [number for number in dict.fromkeys(numbers) if number in self._prompts]
        return (_unpack(self._prompts[number]) for number in reversed(held))

    def keep(self, prompt: Prompt, number: int, session: Session | None) -> None:
        packed = self._prompts[number] = _pack(prompt, session)
        self._held += packed.held_bytes
        if session is not None:
            numbers = self._sessions.setdefault(session, [])
            numbers.append(number)
            if len(numbers) > PER_SESSION:
                self._forget(numbers[0])
        while self._held > self._max_bytes and len(self._prompts) > 1:
            self._forget(next(iter(self._prompts)))

    def _forget(self, number: int) -> None:
        packed = self._prompts.pop(number)
        self._held -= packed.held_bytes
        if packed.session is not None:
            numbers = self._sessions[packed.session]
            numbers.remove(number)
            if not numbers:
                del self._sessions[packed.session]


def _pack(prompt: Prompt, session: Session | None) -> _Packed:
    columns: list[NDArray[Any]] = [prompt.keys, prompt.tokens, prompt.labels]
    if prompt.shapes is not None:
        columns[1:1] = [prompt.shapes, prompt.contents]
    return _Packed(
        b"".join(column.tobytes() for column in columns),
        len(prompt.keys),
        prompt.shapes is not None,
        prompt.tools or _NO_TOOLS,
        prompt.shows,
        prompt.grew,
        session,
    )


def _unpack(packed: _Packed) -> Prompt:
    columns, count = packed.columns, packed.blocks
    words = np.frombuffer(columns, np.uint64, (3 if packed.is_text else 1) * count)
    tokens_at = words.nbytes
    keys = words[:count]
    return Prompt(
        keys=keys,
        tokens=np.frombuffer(columns, np.int32, count, tokens_at),
        labels=np.frombuffer(columns, np.uint8, count, tokens_at + 4 * count),
        shapes=words[count : 2 * count] if packed.is_text else None,
        contents=words[2 * count :] if packed.is_text else keys,
        tools=packed.tools,
        shows=packed.shows,
        grew=packed.grew,
    )
