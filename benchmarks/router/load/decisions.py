"""Decision time of our router while its index holds a given number of blocks; called by ``load.py``.

The blocks come as an engine would announce them: msgpack batches over real ZeroMQ sockets, one publisher per replica.
While requests are timed, every request is followed by one more stored and one removed batch, so the index also moves.
Memory here: 4 bytes per token of every chain that requests may repeat (64 MB for a million blocks of 16).
"""

from __future__ import annotations

import http.client
import json
import re
import struct
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import numpy as np
import zmq
from numpy.typing import NDArray
from scripts.engines.ports import free_port
from scripts.engines.server import launch

from benchmarks.console import progress, show_table
from benchmarks.estimates import quantiles
from benchmarks.router.rivals import semgate
from benchmarks.router.upstreams import MODEL

BLOCK_TOKENS = 16
CHAIN_BLOCKS = 128
TAIL_TOKENS = 100
_SUBSCRIBED_S, _INDEXED_S = 30.0, 120.0
_GAUGE = re.compile(r"^(semgate_index_blocks)(?:\{[^}]*\})?\s+(\S+)$", re.MULTILINE)
_encode = msgspec.msgpack.Encoder().encode
_direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@dataclass(frozen=True, slots=True)
class IndexPlan:
    blocks: int = 1_000_000
    requests: int = 4_000
    policy: str = "precise_prefix"
    replicas: int = 16


class Publisher:
    """One engine's event socket. It waits when the other side is slow instead of dropping."""

    def __init__(self, context: zmq.Context[Any], seed: int) -> None:
        self.endpoint = f"tcp://127.0.0.1:{free_port()}"
        self._socket = context.socket(zmq.XPUB)
        self._socket.setsockopt(zmq.XPUB_NODROP, 1)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.SNDTIMEO, 30_000)
        self._socket.bind(self.endpoint)
        self._draw = np.random.default_rng(seed)
        self._sent = self._hashes = 0
        self._seed = seed
        self.chains: list[NDArray[np.uint32]] = []

    def wait_for_subscriber(self) -> None:
        if not self._socket.poll(int(1000 * _SUBSCRIBED_S)):
            raise TimeoutError(f"no subscriber on {self.endpoint} within {_SUBSCRIBED_S:.0f} s")

    def store_chain(self, blocks: int, *, keep: bool) -> list[int]:
        """Announces a new chain in two batches, the second with the first as its parent."""
        tokens = self._draw.integers(5, 49_000, blocks * BLOCK_TOKENS, dtype=np.uint32)
        first = (self._seed << 40) + self._hashes + 1
        hashes = list(range(first, first + blocks))
        self._hashes += blocks
        half = max(1, blocks // 2)
        self._send(_stored(hashes[:half], None, tokens[: half * BLOCK_TOKENS]))
        if half < blocks:
            self._send(_stored(hashes[half:], hashes[half - 1], tokens[half * BLOCK_TOKENS :]))
        if keep:
            self.chains.append(tokens)
        return hashes

    def remove(self, hashes: list[int]) -> None:
        self._send({"type": "BlockRemoved", "block_hashes": hashes, "medium": "GPU"})

    def close(self) -> None:
        self._socket.close()

    def _send(self, event: dict[str, Any]) -> None:
        payload = _encode([time.time(), [event], 0])
        self._socket.send_multipart([b"", struct.pack(">Q", self._sent), payload])
        self._sent += 1


def _stored(hashes: list[int], parent: int | None, tokens: NDArray[np.uint32]) -> dict[str, Any]:
    return {
        "type": "BlockStored",
        "block_hashes": hashes,
        "parent_block_hash": parent,
        "token_ids": tokens.tolist(),
        "block_size": BLOCK_TOKENS,
        "lora_id": None,
        "medium": "GPU",
    }


def measure_decisions(upstreams: Sequence[str], plan: IndexPlan) -> dict[str, Any]:
    """Every replica is a name of its own for one of the fast upstreams: the load is on the router."""
    with TemporaryDirectory(prefix="decisions-") as name, _publishers(plan.replicas) as publishers:
        replicas = [
            f"{upstreams[number % len(upstreams)]};name=r{number};events={publisher.endpoint}"
            for number, publisher in enumerate(publishers)
        ]
        status_port = free_port()
        more = ("--status-port", str(status_port))
        spec = semgate(replicas, plan.policy, Path(name), block_tokens=BLOCK_TOKENS, more=more)
        with launch(spec) as router:
            filled_s, indexed = _fill(status_port, publishers, plan.blocks)
            _ask(router.port, publishers, plan.requests)
        return {**_read_decisions(Path(name)), "indexed_blocks": indexed, "filled_s": filled_s, "policy": plan.policy}


@contextmanager
def _publishers(count: int) -> Iterator[list[Publisher]]:
    context: zmq.Context[Any] = zmq.Context()
    made = [Publisher(context, seed) for seed in range(1, count + 1)]
    try:
        yield made
    finally:
        for publisher in made:
            publisher.close()
        context.term()


def _fill(status_port: int, publishers: Sequence[Publisher], blocks: int) -> tuple[float, int]:
    for publisher in publishers:
        publisher.wait_for_subscriber()
    started = time.monotonic()
    for number in range(-(-blocks // CHAIN_BLOCKS)):
        publishers[number % len(publishers)].store_chain(CHAIN_BLOCKS, keep=True)
    indexed = indexed_blocks(status_port)
    while indexed < blocks and time.monotonic() - started < _INDEXED_S:
        time.sleep(0.25)
        indexed = indexed_blocks(status_port)
    progress(f"{indexed} of {blocks} blocks indexed after {time.monotonic() - started:.1f} s")
    return time.monotonic() - started, indexed


def indexed_blocks(status_port: int) -> int:
    with _direct.open(f"http://127.0.0.1:{status_port}/metrics", timeout=30) as answer:
        return int(sum(float(value) for _, value in _GAUGE.findall(answer.read().decode())))


def _ask(port: int, publishers: Sequence[Publisher], requests: int) -> None:
    """One at a time: a chain that some replica holds, cut somewhere, and a new tail."""
    draw = np.random.default_rng(7)
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        for _ in range(requests):
            publisher = publishers[int(draw.integers(len(publishers)))]
            chain = publisher.chains[int(draw.integers(len(publisher.chains)))]
            cut = int(draw.integers(CHAIN_BLOCKS // 4, CHAIN_BLOCKS + 1)) * BLOCK_TOKENS
            tokens = [*chain[:cut].tolist(), *draw.integers(5, 49_000, TAIL_TOKENS).tolist()]
            body = json.dumps({"model": MODEL, "prompt": tokens, "max_tokens": 1, "seed": 0, "stream": True})
            connection.request("POST", "/v1/completions", body, {"content-type": "application/json"})
            answer = connection.getresponse()
            answer.read()
            if answer.status != 200:
                raise RuntimeError(f"status {answer.status} while decisions were timed")
            publisher.remove(publisher.store_chain(BLOCK_TOKENS, keep=False))
    finally:
        connection.close()


def _read_decisions(folder: Path) -> dict[str, Any]:
    """From the router's own decision files, complete once it has ended."""
    records = [json.loads(line) for path in sorted(folder.glob("*.jsonl")) for line in path.read_text().splitlines()]
    return {
        "n": len(records),
        "decide_us": quantiles([record["decide_us"] for record in records]),
        "first_byte_us": quantiles([1000.0 * record["first_byte_ms"] for record in records if record["first_byte_ms"]]),
        "exact_blocks_mean": float(np.mean([record["exact_blocks"] for record in records])) if records else None,
        "routes": dict(Counter(record["route"] for record in records)),
    }


def show_decisions(record: Mapping[str, Any]) -> None:
    def shown(us: Mapping[str, float] | None) -> str | None:
        return None if us is None else " / ".join(f"{us[name]:.0f}" for name in ("p50", "p90", "p99", "high"))

    rows = [
        ("blocks in the index when asked", record["indexed_blocks"]),
        ("seconds from first announcement to all indexed", f"{record['filled_s']:.1f}"),
        ("decisions", record["n"]),
        ("decision p50 / p90 / p99 / most, us", shown(record["decide_us"])),
        ("request read to first byte (look-up, decision, replica), us", shown(record["first_byte_us"])),
        ("blocks found at the chosen replica, mean", record["exact_blocks_mean"]),
        ("routes", json.dumps(record["routes"])),
    ]
    show_table(f"Decisions of {record['policy']} over announced blocks", ("what", "measured"), rows)
