"""Options in, a trace file and a summary out; for the command line and notebooks."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from semantic_kv.collect.http_server import HttpServer
from semantic_kv.collect.mock import MockServer, run_mock
from semantic_kv.collect.plan import PlanOptions, Step, plan_requests
from semantic_kv.collect.prompts import BUILT_IN_TEXT, read_prompts
from semantic_kv.collect.recorder import TraceRecorder
from semantic_kv.collect.run import Collection, CollectSummary, Progress, warm_up_requests
from sembase.errors import ConfigurationError
from sembase.tokenizer import open_tokenizer
from sembase.trace.anonymise import MIN_KEY_BYTES, new_key
from sembase.trace.files import write_atomically


@dataclass(frozen=True, slots=True)
class CollectOptions:
    """``output`` ends in ``.jsonl``. ``keep_text`` writes prompt text; otherwise digests, keyed by ``key_file`` or
    by a random key that is not stored. ``tokenizer``: a tokenizer.json for the token counts of blocks, None for the
    built-in rule. ``headers`` are sent with every request and never written to a file. ``model`` is the name of the
    language model, None for the first one the server lists."""

    output: Path
    plan: PlanOptions = field(default_factory=PlanOptions)
    prompts: Path | None = None
    base_url: str | None = None
    model: str | None = None
    timeout_s: float = 300.0
    headers: Mapping[str, str] = field(default_factory=dict)
    keep_text: bool = False
    key_file: Path | None = None
    tokenizer: str | None = None
    warm_up: bool = True

    def __post_init__(self) -> None:
        if not self.output.name.endswith(".jsonl"):
            raise ConfigurationError(f"{self.output}: the output file must end in .jsonl")
        if not 1.0 <= self.timeout_s <= 86_400.0:
            raise ConfigurationError("the timeout must be between 1 and 86,400 seconds")


def collect_from_server(options: CollectOptions, progress: Progress | None = None) -> CollectSummary:
    """Sends the planned requests to ``base_url`` and writes the trace. The file appears whole or not at all."""
    return asyncio.run(_collect(options, progress))


def collect_from_mock(options: CollectOptions) -> CollectSummary:
    """The same without a server, in simulated time; every record is marked ``mock``."""
    steps = _steps(options)
    with _recorder(options) as recorder:
        written = run_mock(steps, MockServer(seed=options.plan.seed), recorder)
    return CollectSummary(len(steps), written, {}, reports_cached_tokens=True, seconds=0.0, peak_concurrency=0)


async def _collect(options: CollectOptions, progress: Progress | None) -> CollectSummary:
    if options.base_url is None:
        raise ConfigurationError("set --base-url http://host:port, or use --mock")
    steps = _steps(options)
    warm_up = warm_up_requests(steps) if options.warm_up else []
    server = HttpServer(
        options.base_url, model=options.model, timeout_s=options.timeout_s, headers=dict(options.headers)
    )
    async with server:
        with _recorder(options) as recorder:
            collection = Collection(server, recorder, options.plan.concurrency, progress)
            return await collection.run(steps, warm_up)


def _steps(options: CollectOptions) -> list[Step]:
    prompts = BUILT_IN_TEXT if options.prompts is None else read_prompts(options.prompts)
    return plan_requests(prompts, options.plan)


@contextmanager
def _recorder(options: CollectOptions) -> Iterator[TraceRecorder]:
    if options.keep_text and options.key_file is not None:
        raise ConfigurationError("--key-file has no effect with --keep-raw-text, which writes no digests")
    key = new_key() if options.key_file is None else read_key(options.key_file)
    with write_atomically(options.output) as raw:
        stream = io.TextIOWrapper(raw, "utf-8")
        try:
            yield TraceRecorder(stream, None if options.keep_text else key, tokenizer=open_tokenizer(options.tokenizer))
        finally:
            stream.detach()  # flushed; write_atomically closes the file


def read_key(path: Path) -> bytes:
    """The bytes of a file, without surrounding white space."""
    try:
        key = path.read_bytes().strip()
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read: {error.strerror or error}") from None
    if len(key) < MIN_KEY_BYTES:
        raise ConfigurationError(f"{path}: a digest key needs at least {MIN_KEY_BYTES} random bytes")
    return key
