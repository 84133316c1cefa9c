"""Sessions of growing prompts through one or several routers: what was cached, what was repeated, what was lost."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

SYSTEM_TOKENS: Final = 512
SYSTEMS: Final = 8
TURN_TOKENS: Final = 256
TURNS: Final = 6
ATTEMPTS: Final = 200
PAUSE_S: Final = 0.05


@dataclass(slots=True)
class Outcome:
    """``repeated``: attempts that got no byte and were made again, on the next router. ``lost``: never answered 200."""

    requests: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    repeated: int = 0
    lost: int = 0
    by_port: dict[int, int] = field(default_factory=dict)

    @property
    def hit_rate(self) -> float:
        return self.cached_tokens / self.prompt_tokens


def sessions(count: int, seed: int) -> list[list[list[int]]]:
    """Prompts by session and turn; sessions share one of a few system prompts."""
    choose = random.Random(seed)
    systems = [[choose.randrange(50_000) for _ in range(SYSTEM_TOKENS)] for _ in range(SYSTEMS)]
    made = []
    for _ in range(count):
        prompt, turns = list(choose.choice(systems)), []
        for _ in range(TURNS):
            prompt = prompt + [choose.randrange(50_000) for _ in range(TURN_TOKENS)]
            turns.append(prompt)
        made.append(turns)
    return made


async def run(ports: Sequence[int], count: int, *, at_once: int, seed: int, after: Callable[[int], None]) -> Outcome:
    """Each request goes to a router at random, as behind a balancer. ``after`` is called with the requests done."""
    outcome, permits, choose = Outcome(), asyncio.Semaphore(at_once), random.Random(seed + 1)

    async def play(turns: Sequence[Sequence[int]]) -> None:
        async with permits:
            for prompt in turns:
                await _ask(choose.randrange(len(ports)), ports, prompt, outcome)
                after(outcome.requests)

    await asyncio.gather(*(play(turns) for turns in sessions(count, seed)))
    return outcome


async def _ask(first: int, ports: Sequence[int], prompt: Sequence[int], outcome: Outcome) -> None:
    body = json.dumps({"model": "m", "prompt": list(prompt), "max_tokens": 1}).encode()
    outcome.requests += 1
    for attempt in range(ATTEMPTS):
        port = ports[(first + attempt) % len(ports)]
        reply = await _exchange(port, body)
        if reply is None:
            outcome.repeated += 1
            await asyncio.sleep(PAUSE_S)
            continue
        status, page = reply
        if status != 200:
            break
        usage = json.loads(page)["usage"]
        outcome.prompt_tokens += usage["prompt_tokens"]
        outcome.cached_tokens += usage["prompt_tokens_details"]["cached_tokens"]
        outcome.by_port[port] = outcome.by_port.get(port, 0) + 1
        return
    outcome.lost += 1


async def _exchange(port: int, body: bytes) -> tuple[int, bytes] | None:
    """None if no byte of an answer came: such a request can be repeated."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return None
    try:
        head = f"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        answered = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
        length = int(answered.partition("content-length:")[2].partition("\r\n")[0])
        return int(answered.split(" ")[1]), await reader.readexactly(length)
    except (OSError, asyncio.IncompleteReadError):
        return None
    finally:
        writer.close()
