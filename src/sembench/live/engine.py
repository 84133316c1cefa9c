"""The server beyond its completions: identity, cache resets, counters, and what it reports about single requests.

Reports come from three places: the connector's event files, the reply's body and the reply's routing headers.
"""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from sembase.errors import ConfigurationError
from sembase.streams import write_err
from sembench.engine_events.follow import EventFollower
from sembench.engine_events.join import backend_rows
from sembench.gates.request_ids import item_of
from sembench.http.prometheus import Scrape, difference, parse_scrape
from sembench.metrics.rows import BackendRow
from semblend.contract import DonorRegistered, EventLine

_VERSION_PATHS: Final = ("/version", "/get_server_info")
_RESET_TIMEOUT_S: Final = 10.0
_RESET_PAUSE_S: Final = 0.05
_TRIES_BETWEEN_POKES: Final = 5
_ABSENT: Final = frozenset({401, 403, 404, 405, 501})
_POLL_S: Final = 0.01
_FIRST_POKE_S: Final = 0.1
_POKE_EVERY_S: Final = 0.5
_SILENT_S: Final = 0.5
_OUTCOME_HEADERS: Final = (
    "x-semblend-routing-path",
    "x-semrouter-path",
    "x-semantic-route",
    "x-gateway-route",
    "x-route",
)
_WORKER_HEADER: Final = "x-semblend-routing-worker"
_SIMILARITY_HEADER: Final = "x-semblend-routing-similarity"
_OUTCOME_ALIASES: Final = {
    "semantic": "semantic_placement",
    "cold": "cold_route",
    "exact": "exact_route",
    "fail_open": "error_fallback",
}

Poke = Callable[[], Awaitable[object]]
"""Sends a minimal request: an idle engine takes no steps, so it frees no blocks and reports no events."""


class Getter(Protocol):
    async def get(self, url_or_path: str) -> tuple[int, bytes]: ...


class Poster(Protocol):
    async def post(self, url_or_path: str) -> tuple[int, bytes]: ...


async def describe_engine(server: Getter, model: str) -> dict[str, Any]:
    """Name and version for the result; None for what the server does not report."""
    models = await _get_json(server, "/v1/models")
    served = models.get("data") if isinstance(models.get("data"), list) else []
    first = served[0] if served and isinstance(served[0], dict) else {}
    version = None
    for path in _VERSION_PATHS:
        found = (await _get_json(server, path)).get("version")
        if isinstance(found, str):
            version = found
            break
    owner = first.get("owned_by")
    return {"name": owner if isinstance(owner, str) else None, "version": version, "model": model}


def engine_label(engine: Mapping[str, Any]) -> str:
    return " ".join(str(engine.get(part) or f"(no {part})") for part in ("name", "version"))


async def _get_json(server: Getter, path: str) -> dict[str, Any]:
    try:
        code, body = await server.get(path)
        record = json.loads(body) if code == 200 else None
    except (ConnectionError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}


@dataclass(frozen=True, slots=True)
class ResetFailure:
    """Why a cache may not be empty. ``is_final``: a retry would not help; ``is_lost``: the server does not answer."""

    url: str
    detail: str
    is_final: bool = False
    is_lost: bool = False


class Resets:
    """Empties caches through all of ``urls`` in order, retrying each until it succeeds or 10 s have passed.

    A reset counts only if the server confirms it: 2xx and no ``{"success": false}``. An engine that still holds blocks
    of a finished request answers false until it has freed them; it is poked between tries.
    """

    def __init__(self, poster: Poster, urls: tuple[str, ...], poke: Poke) -> None:
        self._poster = poster
        self._urls = urls
        self._poke = poke

    def __bool__(self) -> bool:
        return bool(self._urls)

    async def clear(self) -> ResetFailure | None:
        """None when every cache is known to be empty."""
        for url in self._urls:
            if (failure := await self._clear_one(url)) is not None:
                return failure
        return None

    async def require(self, option: str) -> None:
        """Called once before a run: a reset that fails now would fail for every item."""
        if (failure := await self.clear()) is not None:
            raise ConfigurationError(
                f"{option} {failure.url}: {failure.detail}; vLLM has /reset_prefix_cache only with "
                "VLLM_SERVER_DEV_MODE=1, SGLang has /flush_cache"
            )

    async def _clear_one(self, url: str) -> ResetFailure | None:
        deadline = time.monotonic() + _RESET_TIMEOUT_S
        tries = 0
        while (failure := await self._try(url)) is not None:
            if failure.is_final or time.monotonic() >= deadline:
                return failure
            tries += 1
            if tries % _TRIES_BETWEEN_POKES == 0:
                await self._poke()
            await asyncio.sleep(_RESET_PAUSE_S)
        return None

    async def _try(self, url: str) -> ResetFailure | None:
        try:
            code, body = await self._poster.post(url)
        except ConnectionError as error:
            return ResetFailure(url, str(error), is_final=True, is_lost=True)
        if not 200 <= code < 300:
            return ResetFailure(url, f"answers {code}", is_final=code in _ABSENT)
        return ResetFailure(url, "answers success: false") if _reports_failure(body) else None


def _reports_failure(body: bytes) -> bool:
    try:
        record = json.loads(body)
    except ValueError:
        return False  # an empty or plain-text body: only the status code counts
    return isinstance(record, dict) and record.get("success") is False


async def scrape(server: Getter, url: str | None) -> Scrape | None:
    """The server's metrics, None if no URL was given. A URL that serves none is an error."""
    if url is None:
        return None
    code, body = await server.get(url)
    if code != 200:
        raise ConfigurationError(f"--metrics-url {url} answers {code}; vLLM and SGLang have /metrics")
    return parse_scrape(body.decode("utf-8", "replace"), f"--metrics-url {url}")


async def metrics_since(before: Scrape | None, server: Getter, url: str | None) -> dict[str, Any] | None:
    """The change of the server's metrics. A failed scrape after the run is reported and costs no rows."""
    if before is None:
        return None
    try:
        after = await scrape(server, url)
    except (ConnectionError, ConfigurationError) as error:
        write_err(f"sembench: note: no metrics after the run: {error}\n")
        return None
    if after is None:
        return None
    return metrics_change(before, after)


def metrics_change(before: Scrape, after: Scrape) -> dict[str, Any]:
    changes: dict[str, Any] = _finite(difference(before, after).to_json())
    return changes


def _finite(value: Any) -> Any:
    """None instead of infinity and NaN: gauges may have them, JSON has not."""
    if isinstance(value, dict):
        return {key: _finite(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_finite(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


class ConnectorAudit:
    """Follows the connectors' event files while engines write them, one file per engine behind a router.

    Only requests announced with ``expect`` are tracked; earlier content of the files is ignored. Waits are bounded by
    ``max_wait_s``, and idle engines are poked. While no file has received any event, waits end after half a second:
    probably no connector writes there.
    """

    def __init__(self, paths: Sequence[Path], max_wait_s: float, poke: Poke) -> None:
        self._followers = [EventFollower(path) for path in paths]
        self._max_wait_s = max_wait_s
        self._poke = poke
        self._events: dict[str, list[EventLine]] = {}
        self._has_events = False
        for follower in self._followers:
            follower.read()

    @property
    def damaged(self) -> int:
        return sum(follower.damaged for follower in self._followers)

    @property
    def missing(self) -> int:
        return sum(follower.missing for follower in self._followers)

    def expect(self, request_ids: Collection[str]) -> None:
        """Track these requests from now on. Earlier events with the same ids, from an aborted run, are dropped."""
        self._read()
        for request_id in request_ids:
            self._events[request_id] = []

    async def unregistered(self, donor_ids: Collection[str]) -> set[str]:
        """Waits until all donors are registered; returns those that are not when the time is over."""

        def pending() -> set[str]:
            return {name for name in donor_ids if not any(map(_is_registration, self._events.get(name, ())))}

        await self._until(lambda: not pending())
        return pending()

    async def outcome_of(self, item_id: str) -> BackendRow | None:
        """Waits until the engine has reported how much the request reused."""

        def reported() -> BackendRow | None:
            return backend_rows(self._events.get(item_id, ()), (item_id,)).get(item_id)

        await self._until(lambda: (row := reported()) is not None and row.reused_tokens is not None)
        return reported()

    def release(self, request_ids: Collection[str]) -> None:
        for request_id in request_ids:
            self._events.pop(request_id, None)

    def close(self) -> None:
        for follower in self._followers:
            follower.close()

    async def _until(self, holds: Callable[[], bool]) -> None:
        started = time.monotonic()
        poke_at, poked = started + _FIRST_POKE_S, False  # a late loop pokes once before it gives up
        while True:
            self._read()
            now = time.monotonic()
            limit_s = self._max_wait_s if self._has_events else min(_SILENT_S, self._max_wait_s)
            if holds() or (now - started >= limit_s and (poked or limit_s < _FIRST_POKE_S)):
                return
            if now >= poke_at:
                for _ in self._followers:  # a router sends one poke to each engine
                    await self._poke()
                poke_at, poked = time.monotonic() + _POKE_EVERY_S, True
            await asyncio.sleep(_POLL_S)

    def _read(self) -> None:
        for line in (line for follower in self._followers for line in follower.read()):
            self._has_events = True
            request_id = getattr(line.event, "request_id", None)
            if request_id is not None and (known := item_of(request_id, self._events.keys())) is not None:
                self._events[known].append(line)


def _is_registration(line: EventLine) -> bool:
    return isinstance(line.event, DonorRegistered)


def backend_of_reply(request_id: str, report: Mapping[str, Any] | None) -> BackendRow | None:
    """The backend's report in the reply itself, from servers that send one. A report without an outcome is ignored."""
    if report is None or not isinstance(report.get("outcome"), str):
        return None
    runs = report.get("runs")
    return BackendRow(
        engine_request_id=request_id,
        outcome=report["outcome"],
        boundary=_count(report.get("exact_prefix_tokens")),
        reused_tokens=_count(report.get("reused_tokens")),
        computed_tokens=_count(report.get("computed_tokens")),
        runs=len(runs) if isinstance(runs, list) else _count(runs),
        decline_reason=report["reason"] if isinstance(report.get("reason"), str) else None,
    )


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


@dataclass(frozen=True, slots=True)
class Route:
    """What a router reports about a request; None for what it does not report."""

    outcome: str | None = None
    worker: str | None = None
    similarity: float | None = None


def route_of(headers: Mapping[str, str]) -> Route:
    """The first outcome header present wins."""
    path = next((headers[name].strip() for name in _OUTCOME_HEADERS if headers.get(name, "").strip()), None)
    outcome = None if path is None else _OUTCOME_ALIASES.get(path.lower(), path.lower())
    return Route(outcome, headers.get(_WORKER_HEADER) or None, _similarity(headers.get(_SIMILARITY_HEADER)))


def _similarity(text: str | None) -> float | None:
    """None unless the header is a number from 0 to 1."""
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if 0.0 <= value <= 1.0 else None
