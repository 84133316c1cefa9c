"""The load client of ``load.py``: many SSE streams from one process, on bare sockets and a C parser.

A ``Job`` (JSON on the command line) goes in; one line of JSON with counts and latency quantiles comes out. A stream is
good only if every byte of its body is what the replica sends. Memory: 24 bytes per finished request, about 6 kB per
open stream.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from array import array
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import cycle
from typing import Any, cast
from urllib.parse import urlsplit

import httptools

from benchmarks.estimates import quantiles
from benchmarks.router.upstreams import MODEL, runner, stream_body

_GRACE_S = 60.0  # for what is still open when the time is over
_PROMPTS = 256
_LONG_PROMPTS = 16
_SHARED = "You answer questions about one product. Be brief, name the page of the manual, never guess. " * 6


@dataclass(frozen=True, slots=True)
class Job:
    """``streams`` in a closed loop, or, with ``rate_per_s``, arrivals at a fixed rate whatever the answers do.

    ``prompt_bytes``: of each prompt at least."""

    urls: tuple[str, ...]
    seconds: float
    tokens: int
    pause_ms: int
    streams: int = 0
    rate_per_s: float | None = None
    ramp_s: float = 0.0
    warmup_s: float = 0.0
    prompt_bytes: int = 0

    @classmethod
    def from_json(cls, text: str) -> Job:
        record = json.loads(text)
        return cls(**{**record, "urls": tuple(record["urls"])})

    def as_json(self) -> str:
        return json.dumps(asdict(self))


def requests_of(job: Job) -> list[bytes]:
    """The same prompts for every arm: one shared instruction, then a question that differs."""
    host = urlsplit(job.urls[0]).netloc.encode()
    made = []
    for number in range(_LONG_PROMPTS if job.prompt_bytes else _PROMPTS):
        question = f"Question {number}: " + f"what does setting {number * 7919 % 1009} change? " * 4
        question += f"Page {number} of the manual. " * (job.prompt_bytes // 20)
        messages = [{"role": "system", "content": _SHARED}, {"role": "user", "content": question}]
        fields = {"model": MODEL, "messages": messages, "max_tokens": job.tokens, "seed": job.pause_ms, "stream": True}
        body = json.dumps(fields, separators=(",", ":")).encode()
        head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: %b\r\ncontent-type: application/json\r\n" % host
        made.append(head + b"content-length: %d\r\n\r\n%b" % (len(body), body))
    return made


class Tally:
    """What came back. Times are of good requests that were sent after the warm-up."""

    def __init__(self, job: Job) -> None:
        self.expected = stream_body(job.tokens)
        self.counted_from = 0.0
        self.first_ms, self.total_ms = array("d"), array("d")
        self.failed: Counter[str] = Counter()
        self.open = self.peak_open = self.ok = 0

    def good(self, sent: float, first: float, ended: float) -> None:
        if sent >= self.counted_from:
            self.ok += 1
            self.first_ms.append(1000.0 * (first - sent))
            self.total_ms.append(1000.0 * (ended - sent))


class Connection(asyncio.Protocol):
    """One keep-alive connection; ``on_idle`` is called when a request on it has ended, well or not."""

    def __init__(self, driver: Driver) -> None:
        self._driver, self._tally = driver, driver.tally
        self._transport: asyncio.Transport | None = None
        self._parser: Any = None
        self._parts: list[bytes] = []
        self._sent = self._first = 0.0

    @property
    def is_open(self) -> bool:
        return self._transport is not None

    def send(self, request: bytes) -> None:
        assert self._transport is not None
        self._parser, self._parts = httptools.HttpResponseParser(self), []
        self._tally.open += 1
        self._tally.peak_open = max(self._tally.peak_open, self._tally.open)
        self._sent, self._first = time.perf_counter(), 0.0
        self._transport.write(request)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        if self._parser is not None:
            self._end("cut after first byte" if self._first else "cut before first byte")

    def data_received(self, data: bytes) -> None:
        if self._parser is None:
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._end("not HTTP")

    def on_body(self, data: bytes) -> None:
        if not self._first:
            self._first = time.perf_counter()
        self._parts.append(data)

    def on_message_complete(self) -> None:
        status = self._parser.get_status_code()
        if status != 200:
            self._end(f"status {status}")
        elif b"".join(self._parts) != self._tally.expected:
            self._end("other bytes")
        else:
            self._end(None)

    def _end(self, failure: str | None) -> None:
        self._parser = None
        self._tally.open -= 1
        if failure is None:
            self._tally.good(self._sent, self._first, time.perf_counter())
        else:
            self._tally.failed[failure] += 1
            self.close()
        self._driver.on_idle(self)


class Driver:
    """Starts requests until the time is over, then waits for the open ones."""

    def __init__(self, job: Job) -> None:
        self.job, self.tally = job, Tally(job)
        self._addresses = cycle([(str(p.hostname), int(p.port or 80)) for p in map(urlsplit, job.urls)])
        self._requests: Iterator[bytes] = cycle(requests_of(job))
        self._idle: list[Connection] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._until = 0.0
        self._drained = asyncio.Event()

    async def run(self) -> dict[str, Any]:
        started = time.perf_counter()
        self.tally.counted_from = started + self.job.warmup_s
        self._until = self.tally.counted_from + self.job.seconds
        cpu = time.process_time()
        if self.job.rate_per_s is None:
            await self._open_all(started)
            await asyncio.sleep(max(0.0, self._until - time.perf_counter()))
        else:
            await self._arrive(started, self.job.rate_per_s)
        seconds, in_time = time.perf_counter() - self.tally.counted_from, self.tally.ok
        unfinished = await self._drain()
        return self._record(in_time / seconds, unfinished, time.process_time() - cpu)

    def on_idle(self, connection: Connection) -> None:
        if self.job.rate_per_s is not None:
            if connection.is_open:
                self._idle.append(connection)
        elif time.perf_counter() < self._until:
            self._again(connection)
        else:
            connection.close()
        if self.tally.open == 0:
            self._drained.set()

    def _again(self, connection: Connection) -> None:
        if connection.is_open:
            asyncio.get_running_loop().call_soon(self._send_on, connection)
        else:
            self._start()

    def _send_on(self, connection: Connection) -> None:
        """Never from within the parser's own callback. An idle connection may have been closed meanwhile."""
        if connection.is_open:
            connection.send(next(self._requests))
        elif time.perf_counter() < self._until:
            self._start()

    async def _open_all(self, started: float) -> None:
        for number in range(self.job.streams):
            due = started + self.job.ramp_s * number / self.job.streams
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            self._start()

    async def _arrive(self, started: float, rate_per_s: float) -> None:
        number = 0
        while (due := started + number / rate_per_s) < self._until:
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            while self._idle and not self._idle[-1].is_open:
                self._idle.pop()
            if self._idle:
                self._idle.pop().send(next(self._requests))
            else:
                self._start()
            number += 1

    def _start(self) -> None:
        task = asyncio.get_running_loop().create_task(self._connect_and_send())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connect_and_send(self) -> None:
        host, port = next(self._addresses)
        try:
            _, connection = await asyncio.get_running_loop().create_connection(lambda: Connection(self), host, port)
        except OSError as error:
            self.tally.failed[f"connect: {type(error).__name__}"] += 1
            await asyncio.sleep(0.05)  # a replica that refuses is not asked a hundred thousand times
            if time.perf_counter() < self._until and self.job.rate_per_s is None:
                self._start()
            return
        connection.send(next(self._requests))

    async def _drain(self) -> int:
        try:
            async with asyncio.timeout(_GRACE_S):
                while self.tally.open or self._tasks:
                    self._drained.clear()
                    if self._tasks:
                        await asyncio.gather(*self._tasks, return_exceptions=True)
                    if self.tally.open:
                        await self._drained.wait()
        except TimeoutError:
            pass
        return self.tally.open

    def _record(self, requests_per_s: float, unfinished: int, cpu_s: float) -> dict[str, Any]:
        failed = dict(self.tally.failed)
        if unfinished:
            failed["unfinished"] = unfinished
        return {
            "ok": self.tally.ok,
            "failed": failed,
            "requests_per_s": requests_per_s,
            "peak_open": self.tally.peak_open,
            "first_ms": quantiles(self.tally.first_ms),
            "total_ms": quantiles(self.tally.total_ms),
            "client_cpu_s": cpu_s,
        }


async def _main(job: Job) -> None:
    print(json.dumps(await Driver(job).run()), flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("job", help="a Job as JSON")
    runner()(_main(Job.from_json(parser.parse_args().job)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
