"""The engine's own counters before and after a run, as differences for the result."""

from __future__ import annotations

import math
from typing import Any, Protocol

from sembase.errors import ConfigurationError
from sembase.streams import write_err
from sembench.http.prometheus import Scrape, difference, parse_scrape


class Getter(Protocol):
    async def get(self, url_or_path: str) -> tuple[int, bytes]: ...


async def scrape(server: Getter, url: str | None) -> Scrape | None:
    """None if nobody asked for metrics. An address that gives none is an error: it was given on purpose."""
    if url is None:
        return None
    code, body = await server.get(url)
    if code != 200:
        raise ConfigurationError(f"--metrics-url {url} answers {code}; vLLM and SGLang have /metrics")
    return parse_scrape(body.decode("utf-8", "replace"), f"--metrics-url {url}")


async def metrics_since(before: Scrape | None, server: Getter, url: str | None) -> dict[str, Any] | None:
    """After the run a missing scrape loses no rows: it is told, and there is no difference."""
    if before is None:
        return None
    try:
        after = await scrape(server, url)
    except (ConnectionError, ConfigurationError) as error:
        write_err(f"sembench: note: no metrics after the run: {error}\n")
        return None
    if after is None:
        return None
    said: dict[str, Any] = _finite(difference(before, after).to_json())
    return said


def _finite(value: Any) -> Any:
    """JSON has no infinity, and gauges do."""
    if isinstance(value, dict):
        return {key: _finite(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_finite(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
