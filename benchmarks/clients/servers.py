"""What the clients load, with its own account of it: stock vLLM without a prefix cache, or the tests' stand-in."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from scripts.engines.specs import SERVED_NAME, EngineOptions, vllm_spec
from tests.fakes.openai_server import running

from benchmarks.clients.load import Target
from benchmarks.console import progress
from benchmarks.equal_threads import launch
from sembench.http.prometheus import Scrape, ScrapeDelta, difference, parse_scrape

CORES = "0-1"
_FAKE_MODEL = "fake-model"
_COUNTED_AFTER_S = 0.5  # the last answer may be out before it is counted
_direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@dataclass(frozen=True, slots=True)
class Account:
    """What the server counted meanwhile, warm-ups included; None where it does not say."""

    requests: int | None = None
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    ttft_mean_ms: float | None = None
    peak_streams: int | None = None


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast the stand-in answers: its first token after ``ttft_ms``, each further one after ``itl_ms``."""

    ttft_ms: float
    itl_ms: float

    def most_requests_per_s(self, concurrency: int, tokens: int) -> float:
        """If neither the client nor the server took any time of its own."""
        return 1000.0 * concurrency / (self.ttft_ms + tokens * self.itl_ms)


class Accountant:
    """Reads the server's counters at its start and tells what moved since."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._before = self._scrape()

    def account(self) -> Account:
        time.sleep(_COUNTED_AFTER_S)
        try:
            moved = difference(self._before, self._scrape())
        except OSError as gone:
            progress(f"the server does not answer any more: {gone}")
            return Account()
        ttft = next((h.mean for h in moved.histograms if h.name == "vllm:time_to_first_token_seconds"), None)
        return Account(
            requests=_counted(moved, "vllm:request_success_total", "fake:requests_total"),
            prompt_tokens=_counted(moved, "vllm:prompt_tokens_total"),
            output_tokens=_counted(moved, "vllm:generation_tokens_total", "fake:generation_tokens_total"),
            ttft_mean_ms=None if ttft is None else 1000.0 * ttft,
            peak_streams=_peak_streams(self._url) if "fake:requests_total" in self._before.kinds else None,
        )

    def _scrape(self) -> Scrape:
        return parse_scrape(_get(f"{self._url}/metrics"), "/metrics")


@contextmanager
def stock_vllm() -> Iterator[Target]:
    options = EngineOptions(cores=CORES, extra=("--no-enable-prefix-caching",))
    with launch(vllm_spec(options)) as server:
        progress(f"server ready after {server.startup_s:.0f} s")
        yield Target(server.base_url, SERVED_NAME)


@contextmanager
def fake_server(pace: Pace, output_tokens: int) -> Iterator[Target]:
    """A new process each time, so that its counts are of one client alone."""
    with running(ttft_ms=pace.ttft_ms, itl_ms=pace.itl_ms, tokens=output_tokens) as url:
        yield Target(url, _FAKE_MODEL)


def _counted(moved: ScrapeDelta, *names: str) -> int | None:
    deltas = [counter.delta for counter in moved.counters if counter.name in names]
    return int(sum(delta or 0.0 for delta in deltas)) if deltas else None


def _peak_streams(url: str) -> int:
    return int(json.loads(_get(f"{url}/seen"))["peak_streams"])


def _get(url: str) -> str:
    with _direct.open(url, timeout=30) as answer:
        text: str = answer.read().decode("utf-8", "replace")
    return text
