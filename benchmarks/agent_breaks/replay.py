"""One session, turn by turn, against one server: prompts as token ids, recorded answers forced, think times between.

The recorded answer is forced so that every arm has the same history and the next prompt continues what the engine
computed, its answer included. The model's own distributions are read all the same, and compared with a cold reading.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from benchmarks.agent_breaks.readings import Arm, Fact, Reading, is_repaired
from benchmarks.agent_breaks.sessions import ReplaySession, SessionTurn
from benchmarks.discovery.codec import Codec
from benchmarks.vllm.client import Ask, Client, Position
from benchmarks.vllm.happenings import Happenings
from benchmarks.vllm.quality import distance

ANSWER_TOKENS = 16
TOP_LOGPROBS = 50
# Where one message ends and the next begins; a tokenizer merges nothing across it.
_MESSAGE = "<|im_start|>"
_COUNTERS = ("repaired_tokens", "published_tokens", "studied_tokens")

_POLL_S = 1.0

Cold = Mapping[tuple[str, int], Sequence[Position]]


@dataclass(frozen=True, slots=True)
class Pause:
    """Between an answer and the next turn: ``min_s``, and after a blended turn until it is repaired or ``max_s``."""

    min_s: float
    max_s: float


@dataclass(frozen=True, slots=True)
class TokenTurn:
    """``answer`` is the beginning of the recorded one; ``fact`` are the first tokens of the new and the stale fact."""

    turn: SessionTurn
    prompt: tuple[int, ...]
    answer: tuple[int, ...]
    fact: tuple[int, int] | None


@dataclass(frozen=True, slots=True)
class TokenSession:
    session: ReplaySession
    turns: tuple[TokenTurn, ...]


class SessionCodec:
    """Sessions to token ids; a message is encoded once, whatever number of turns contain it."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec

    def encode(self, session: ReplaySession) -> TokenSession:
        known: dict[str, tuple[int, ...]] = {}

        def tokens(text: str) -> tuple[int, ...]:
            parts = [_MESSAGE + part for part in text.split(_MESSAGE)[1:]]
            for part in parts:
                if part not in known:
                    known[part] = self._ids(part)
            return tuple(token for part in parts for token in known[part])

        turns = []
        for turn in session.turns:
            answer = self._ids(turn.answer)[:ANSWER_TOKENS]
            stale = None if turn.stale_answer is None else self._ids(turn.stale_answer)
            turns.append(TokenTurn(turn, tokens(turn.prompt), answer, None if stale is None else (answer[0], stale[0])))
        return TokenSession(session, tuple(turns))

    def size(self, text: str) -> int:
        return len(self._codec.encode(text))

    def _ids(self, text: str) -> tuple[int, ...]:
        return tuple(int(token) for token in self._codec.encode(text))


@dataclass(frozen=True, slots=True)
class Server:
    """A running server and its event stream. ``happenings`` is None for the stock engine, which has none."""

    arm: Arm
    client: Client
    happenings: Happenings | None
    sleep: Callable[[float], None] = time.sleep
    block_tokens: int = 16

    def replay(self, session: TokenSession, pause: Callable[[SessionTurn], Pause], cold: Cold) -> list[Reading]:
        readings = []
        before = self._counters()
        for place, turn in enumerate(session.turns):
            salt = f"{self.arm}-{session.session.tenant}"
            reading, request_id, positions = self._ask(session, turn, salt, place == 0)
            reading = self._with_result(reading, request_id)
            reading = _compared(reading, turn, positions, cold.get((reading.session, reading.turn)))
            reading, before = self._thought(reading, pause(turn.turn), before)
            readings.append(reading)
            if self.arm == "stock" and turn.turn.since_break == 0 and place > 0:
                readings += self._exact_hit(session, turn, session.turns[place - 1], salt)
        return readings

    def _exact_hit(self, session: TokenSession, turn: TokenTurn, before: TokenTurn, salt: str) -> list[Reading]:
        """The break turn's prompt is cached now. Ask it with other tokens after the last answer, as many as it has."""
        new_from = continued_at(turn.prompt, before.answer)
        if new_from is None:
            return []
        prompt = turn.prompt[:new_from] + turn.prompt[new_from:][::-1]
        reading, _, _ = self._ask(session, replace(turn, prompt=prompt), salt, False)
        return [replace(reading, arm="hit")]

    def _thought(self, reading: Reading, pause: Pause, before: Mapping[str, int]) -> tuple[Reading, dict[str, int]]:
        """The reading with what was computed and published in the pause after it, and the counters at its end."""
        self.sleep(pause.min_s)
        waited_s = pause.min_s
        while True:
            after = self._counters()
            done = replace(
                reading,
                think_s=waited_s,
                repaired_tokens=after["repaired_tokens"] - before["repaired_tokens"],
                published_tokens=after["published_tokens"] - before["published_tokens"],
                studied_tokens=after["studied_tokens"] - before["studied_tokens"],
            )
            if not reading.is_blended or is_repaired(done) or waited_s >= pause.max_s:
                return done, after
            self.sleep(_POLL_S)
            waited_s += _POLL_S

    def read_cold(
        self, session: TokenSession, turns: Sequence[TokenTurn]
    ) -> tuple[list[Reading], list[Sequence[Position]]]:
        """Each turn in a cache namespace of its own, so nothing serves it."""
        readings, distributions = [], []
        for turn in turns:
            salt = f"cold-{session.session.tenant}-{turn.turn.turn}"
            reading, _, positions = self._ask(session, turn, salt, False)
            readings.append(replace(_compared(reading, turn, positions, None), arm="cold"))
            distributions.append(positions)
        return readings, distributions

    def _ask(
        self, session: TokenSession, turn: TokenTurn, salt: str, is_first: bool
    ) -> tuple[Reading, str, Sequence[Position]]:
        ask = Ask(turn.prompt, len(turn.answer), salt, capture=None, forced=turn.answer)
        reply = self.client.timed(ask, top_logprobs=TOP_LOGPROBS)
        if reply.tokens != turn.answer:
            raise RuntimeError("the server did not return the forced answer; is its logits processor loaded?")
        reading = Reading(
            arm=self.arm,
            session=session.session.session_id,
            kind=session.session.kind,
            turn=turn.turn.turn,
            since_break=turn.turn.since_break,
            is_first=is_first,
            is_tool_call=turn.turn.is_tool_call,
            prompt_tokens=len(turn.prompt),
            answer_tokens=len(turn.answer),
            think_s=0.0,
            ttft_ms=reply.first_token_ms,
            exact_tokens=reply.cached_tokens,
            load_average=os.getloadavg()[0],
            block_tokens=self.block_tokens,
        )
        return reading, reply.request_id, reply.positions

    def _with_result(self, reading: Reading, request_id: str) -> Reading:
        """The connector counts reused tokens as cached in ``usage``; its events tell them apart."""
        if self.happenings is None:
            return reading
        result = self.happenings.result(request_id)
        return replace(
            reading,
            exact_tokens=reading.exact_tokens - result.reused_tokens,
            reused_tokens=result.reused_tokens,
            outcome=result.outcome,
            reason=result.reason,
            load_ms=result.load_ms,
            gap_ms=result.compute_ms,
        )

    def _counters(self) -> dict[str, int]:
        if self.happenings is None:
            return dict.fromkeys(_COUNTERS, 0)
        return counters(self.client.metrics())


def continued_at(prompt: Sequence[int], answer: Sequence[int]) -> int | None:
    """Where a prompt continues after the last answer it contains; None if its history no longer has that answer."""
    size = len(answer)
    for start in range(len(prompt) - size, -1, -1):
        if tuple(prompt[start : start + size]) == tuple(answer):
            return start + size
    return None


def block_tokens(text: str) -> int:
    """Tokens per block of the prefix cache, out of a Prometheus page; vLLM's CPU build has 128."""
    _, found, rest = text.partition('block_size="')
    return int(rest.partition('"')[0]) if found else 16


def counters(text: str) -> dict[str, int]:
    """The connector's counters out of a Prometheus page, summed over engines."""
    found = dict.fromkeys(_COUNTERS, 0)
    for line in text.splitlines():
        for name in _COUNTERS:
            if line.startswith(f"vllm:semblend_{name}_total"):
                found[name] += int(float(line.rpartition(" ")[2]))
    return found


def _compared(
    reading: Reading, turn: TokenTurn, positions: Sequence[Position], cold: Sequence[Position] | None
) -> Reading:
    fact: Fact | None = None
    if turn.fact is not None:
        top = max(positions[0].top, key=positions[0].top.__getitem__)
        fact = "new" if top == turn.fact[0] else "stale" if top == turn.fact[1] else "other"
    if cold is None:
        return replace(reading, fact=fact)
    found = distance(cold, positions)
    return replace(reading, kl=found.kl, same_top=found.top1 == 1.0, fact=fact)
