"""Agent sessions whose prefix breaks, and the random events of a schedule; the engine that serves them is given."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any, Protocol

import numpy as np

VOCABULARY = 512


def text(seed: int, tokens: int) -> list[int]:
    return [int(token) for token in np.random.default_rng(seed).integers(3, VOCABULARY, tokens)]


class Served(Protocol):
    """An engine that runs step by step, and what a schedule does to it."""

    @property
    def scheduler(self) -> Any: ...

    @property
    def half(self) -> Any: ...

    def add(self, request_id: str, prompt: list[int], outputs: int, salt: str | None = None) -> Any: ...

    def abort(self, request_id: str) -> None: ...

    def flush(self) -> None:
        """Deliver the results of the steps in flight."""

    def fail_next(self, draws: Random) -> None:
        """Something breaks in the next step."""


class Session:
    """A conversation that grows by its answers; now and then something changes in its head."""

    def __init__(self, draws: Random, number: int) -> None:
        self.draws = draws
        self.salt = draws.choice([None, None, "x"])
        self.head = text(1000 + number, draws.randrange(8, 70))
        self.history = text(number % 3, draws.randrange(150, 420))
        self.waits_for: Any = None
        self.request_id = ""  # of the latest request

    def next_prompt(self) -> list[int]:
        if self.draws.random() < 0.5:
            place = self.draws.randrange(len(self.head))
            self.head[place] = self.draws.randrange(3, VOCABULARY)
        return self.head + self.history

    def hear(self, request: Any) -> None:
        """The answer becomes history, and a new message follows it."""
        answered = list(request.all_token_ids)[len(self.head) :]
        self.history = (answered + text(self.draws.randrange(10**6), self.draws.randrange(4, 40)))[-600:]


def act(engine: Served, draws: Random, sessions: list[Session], counted: Counter[str], step: int) -> list[Any]:
    """What happens before a step: arrivals, and sometimes an abort, a fault, a reset or pressure. The new requests.

    An id is used once, as engines make sure: the steps in flight may still contain a request that has ended.
    """
    added = []
    for number, session in enumerate(sessions):
        asked = session.waits_for
        if asked is not None and asked.is_finished():
            counted["preemptions"] += asked.num_preemptions
            session.hear(asked)
            session.waits_for = asked = None
        if asked is None and session.request_id not in engine.scheduler.requests and draws.random() < 0.12:
            session.request_id = f"s{number}.{step}"
            prompt, outputs = session.next_prompt(), draws.randrange(1, 30)
            session.waits_for = engine.add(session.request_id, prompt, outputs, session.salt)
            added.append(session.waits_for)
    chance = draws.random()
    if chance < 0.01:
        engine.abort(draws.choice(sessions).request_id)
        counted["aborts"] += 1
    elif chance < 0.02:
        engine.fail_next(draws)
        counted["faults"] += 1
    elif chance < 0.024:
        engine.flush()
        running = draws.random() < 0.5 and not engine.half.has_waiting_blocks
        engine.scheduler.reset_prefix_cache(reset_running_requests=running, reset_connector=True)
        counted["resets"] += 1
    elif chance < 0.03:
        added.append(engine.add(f"x{step}", text(step, draws.randrange(300, 900)), 3))  # pressure
        counted["large neighbours"] += 1
    return added
