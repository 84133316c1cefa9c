"""A plan's requests through ``kvmend proxy`` to a real server: its trace is what a latency model is fitted to."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from statistics import median
from typing import Final

from scripts.engines.server import launch

from benchmarks.walk.recording import ask, proxy_spec
from semantic_kv.collect import Step

CONCURRENCY: Final = 4
FIRST_GUESS_S: Final = 0.5


def record_plan(
    steps: Sequence[Step],
    upstream: str,
    traces: Path,
    *,
    model: str,
    flags: Sequence[str] = (),
    report: Callable[[str], None] = lambda _: None,
) -> None:
    """At the plan's pace: alone, after a gap in typical times of a request sent alone, or at once."""
    warm_up(steps, upstream, model)
    alone_s: list[float] = []
    with launch(proxy_spec(upstream, traces, flags)) as proxy, ThreadPoolExecutor(CONCURRENCY) as senders:
        open_now: set[Future[str]] = set()
        for number, step in enumerate(steps):
            if step.pace == "alone":
                wait(open_now)
            elif step.pace == "paced":
                time.sleep(step.gap * (median(alone_s) if alone_s else FIRST_GUESS_S))
            sent = time.perf_counter()
            answer = senders.submit(_send, step, proxy.base_url, model)
            open_now.add(answer)
            if step.pace == "alone":
                answer.result()
                alone_s.append(time.perf_counter() - sent)
            if (number + 1) % 20 == 0:
                report(f"{number + 1} of {len(steps)} requests sent")
        for each in open_now:
            each.result()


def warm_up(steps: Sequence[Step], upstream: str, model: str) -> None:
    """The longest prompt behind another head, past the proxy: it triggers what the server loads lazily."""
    longest = max(steps, key=lambda step: sum(len(message.content) for message in step.messages))
    messages = [{"role": each.role, "content": f"Warm-up. {each.content}"} for each in longest.messages]
    ask(upstream, model, messages, "warm-up", longest.max_tokens)


def _send(step: Step, base_url: str, model: str) -> str:
    messages = [{"role": each.role, "content": each.content} for each in step.messages]
    return ask(base_url, model, messages, step.request_id, step.max_tokens)
