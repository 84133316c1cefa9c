"""The servers under test: stock vLLM, and vLLM with the connector, otherwise started alike on the same cores."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripts.engines import specs
from scripts.engines.server import EngineServer
from scripts.engines.specs import EngineOptions, native_dtype, vllm_spec
from scripts.models.known import SMOLLM2, KnownModel

from benchmarks.console import RESULTS, progress
from benchmarks.documents import ROOT
from benchmarks.equal_threads import launch
from benchmarks.vllm.client import TOP_LOGPROBS, Ask, Client
from benchmarks.vllm.happenings import Happenings

CORES = os.environ.get("BENCH_CORES", "0-1")  # processors of the servers under test
_KV_CACHE_GIB = 4
OPEN_GATES = {"max_context_share": 1.0, "min_inexact_tokens": 0, "min_reuse_ratio": 0.0}
_FLAGS = (
    "--enable-prompt-tokens-details",
    *("--max-logprobs", str(TOP_LOGPROBS)),
    *("--logits-processors", "benchmarks.vllm.forced_tokens:ForcedTokens"),
)


@dataclass(frozen=True, slots=True)
class Subject:
    """A running server; ``happenings`` is there when it has the connector."""

    client: Client
    server: EngineServer
    happenings: Happenings | None


@contextmanager
def stopped(subject: Subject) -> Iterator[None]:
    """Every process of the server is stopped inside the block."""
    os.killpg(subject.server.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.killpg(subject.server.pid, signal.SIGCONT)


@contextmanager
def stock(model: KnownModel = SMOLLM2) -> Iterator[Subject]:
    with _started(model, ()) as server:
        yield _warmed(Subject(Client(server.base_url, model.name, connector=False), server, None))


@contextmanager
def with_connector(
    options: dict[str, Any],
    events: Path,
    connector: str = specs.CONNECTOR,
    model: KnownModel = SMOLLM2,
    *,
    is_warmed: bool = True,
    kv_cache_gib: int = _KV_CACHE_GIB,
) -> Iterator[Subject]:
    """``options`` go into the connector's extra configuration; its event stream starts empty."""
    RESULTS.mkdir(exist_ok=True)
    events.unlink(missing_ok=True)
    flags = specs.semblend_flags({**options, "events": str(events)}, connector=connector)
    with _started(model, flags, kv_cache_gib) as server:
        client = Client(server.base_url, model.name, connector=True)
        subject = Subject(client, server, Happenings(events))
        yield _warmed(subject) if is_warmed else subject


@contextmanager
def _started(model: KnownModel, extra: tuple[str, ...], kv_cache_gib: int = _KV_CACHE_GIB) -> Iterator[EngineServer]:
    options = EngineOptions(
        model=model,
        cores=CORES,
        dev_mode=True,
        extra=(*_FLAGS, "--max-model-len", str(model.positions), *extra),
        dtype=native_dtype(),
        kv_cache_gib=kv_cache_gib,
        environment={"PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"},
        startup_timeout_s=900.0,
    )
    with launch(vllm_spec(options)) as server:
        kind = "with the connector" if extra else "(stock)"
        progress(f"{model.title}: server {kind} in {native_dtype()} ready after {server.startup_s:.0f} s")
        yield server


def _warmed(subject: Subject) -> Subject:
    """The first requests of a process pay for lazy imports and page faults."""
    prompt = range(100, 1_124)
    for _ in range(2):
        subject.client.timed(Ask(prompt, 4, "warm-up", reuse=False))
        subject.client.whole(Ask(prompt, 4, "warm-up", reuse=False, forced=(5, 6, 7, 8)), scored=True)
        subject.client.reset_exact_cache()
    return subject
