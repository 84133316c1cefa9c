"""The guard of one engine: finished exchanges in; a sample is sent again as the same tenant, to the same upstream.

Started and stopped by `ProxyService`. See docs/guides/guard.md for what it costs and what it can find.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from sembase.errors import ConfigurationError
from sembase.http.client import HttpClient, HttpFault
from semblend.contract import PlanShape
from semblend.guard.checker import AskError, GuardChecker, GuardOptions
from semblend.guard.tracker import GuardLimits
from semblend.outcome.event_log import EventLog
from semgate.http.headers import Headers
from semgate.proxy.exchange import Exchange
from semgate.settings import ProxySettings

MAX_REPLY_BYTES: Final = 4 << 20
Sender = tuple[str, Headers]  # path and headers of the original request


class ProxyGuard:
    def __init__(self, options: GuardOptions, upstream: HttpClient, origin: str, base_path: str) -> None:
        self._upstream = upstream
        self._origin = origin
        self._base_path = base_path
        self._events = EventLog(options.path.with_suffix(".events.jsonl"), "guard")
        self.checker: GuardChecker[Sender] = GuardChecker(options, self._ask, self._events.write)
        self._task: asyncio.Task[None] | None = None

    def offer(self, exchange: Exchange, headers: Headers) -> None:
        """Ids are random: a client must not choose which of its requests are sampled."""
        if exchange.outcome == "ok":
            self.checker.offer(secrets.token_hex(8), exchange.path, exchange.body, (exchange.path, headers))
            if self._task is None:
                self._task = asyncio.create_task(self.checker.run())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
            self._task = None
        self._events.close()

    async def _ask(self, sender: Sender, body: bytes) -> bytes:
        path, headers = sender
        try:
            reply = await self._upstream.send(self._origin, "POST", self._base_path + path, headers, body)
            try:
                pieces, size_bytes = [], 0
                async for piece in reply.chunks():
                    pieces.append(piece)
                    size_bytes += len(piece)
                    if size_bytes > MAX_REPLY_BYTES:
                        raise AskError("the reply is too long")
            finally:
                await reply.abort()
        except HttpFault as fault:
            raise AskError(fault.kind) from None
        if reply.status != 200:
            raise AskError(f"status {reply.status}")
        return b"".join(pieces)

    def collect(self) -> Iterable[Metric]:
        """Labels are bounded: at most 64 models and four classes."""
        checks = CounterMetricFamily("semgate_guard_requests", "Sampled requests by result.", labels=("as",))
        for name, value in asdict(self.checker.counts).items():
            checks.add_metric((name,), value)
        yield checks
        labels = ("model", "class")
        off = GaugeMetricFamily("semgate_guard_off", "1 if the guard turned off blending of this class.", labels=labels)
        mean = GaugeMetricFamily(
            "semgate_guard_kl_mean", "Mean KL divergence over the checks of this class.", labels=labels
        )
        for (model, shape), test in tuple(self.checker.tracker.tests.items()):
            off.add_metric((model, shape.value), float(test.is_off))
            if test.mean_kl is not None:
                mean.add_metric((model, shape.value), test.mean_kl)
        yield off
        yield mean


def guard_options(settings: ProxySettings) -> GuardOptions | None:
    """None if ``guard_fraction`` is 0: the guard costs nothing unless it is enabled."""
    if not settings.guard_fraction:
        return None
    return GuardOptions(
        settings.guard_file,
        settings.guard_fraction,
        GuardLimits(
            settings.guard_ceiling_kl,
            settings.guard_alpha,
            class_ceilings_kl=class_ceilings(settings.guard_class_ceilings),
        ),
        settings.guard_pairs_per_minute,
        settings.guard_priority or None,
    )


def class_ceilings(text: str) -> dict[PlanShape, float]:
    """``edit=0.01,reorder=0.02`` as figures by class."""
    found = {}
    for part in filter(None, map(str.strip, text.split(","))):
        name, _, value = part.partition("=")
        try:
            found[PlanShape(name.strip())] = float(value)
        except ValueError:
            known = ", ".join(shape.value for shape in PlanShape)
            raise ConfigurationError(
                f"guard_class_ceilings: '{part}': write CLASS=NATS with a class of {known}"
            ) from None
    return found
