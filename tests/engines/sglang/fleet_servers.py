"""Two SGLang servers that share one HiCache storage and one directory, for tests. Ended by their ids."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from scripts.engines.generate import Reply, generate
from scripts.engines.server import EngineServer
from scripts.engines.valkey import ValkeyServer, start_valkey
from tests.engines.sglang.running import start
from tests.waiting import wait_until

ALONE: Final = {"reuse": False, "capture": False}
OWN_KV_ONLY: Final = {"reuse": False}  # becomes a donor, and borrows none
PREFETCH_TOKENS: Final = 512  # of longer prompts the engine itself loads a prefix that the storage has


@dataclass(frozen=True, slots=True)
class Fleet:
    """While the file ``trusting`` exists, replica b checks no tags. ``events`` are those of b."""

    a: EngineServer
    b: EngineServer
    directory: ValkeyServer
    trusting: Path
    events: Path

    def records(self) -> int:
        import valkey

        return len(valkey.Valkey.from_url(self.directory.url).keys(b"d*"))

    def capture(self, prompt: Sequence[int], **more: Any) -> None:
        """Replica a computes a prompt, writes its pages to the storage and announces it."""
        known = self.records()
        ask(self.a, prompt, max_new_tokens=1, **more)
        wait_until(lambda: self.records() > known, "the donor was not announced")


@contextmanager
def two_replicas(
    folder: Path, backend: str, layout: str, *, extra: Mapping[str, object], environment: Mapping[str, str]
) -> Iterator[Fleet]:
    key_file, trusting = folder / "fleet.key", folder / "trusting"
    key_file.write_bytes(b"a secret of the fleet, 32 bytes.")
    config = json.dumps({"prefetch_threshold": PREFETCH_TOKENS, **extra})
    flags = (
        *("--max-total-tokens", "4096", "--enable-hierarchical-cache", "--hicache-ratio", "2"),
        *("--watchdog-timeout", "3000"),  # a busy machine is not a dead engine
        *("--hicache-io-backend", "direct", "--hicache-mem-layout", layout),
        *("--hicache-write-policy", "write_through", "--hicache-storage-prefetch-policy", "wait_complete"),
        *("--hicache-storage-backend", backend, "--hicache-storage-backend-extra-config", config),
    )
    with start_valkey() as directory:
        options: dict[str, object] = {
            "fleet_directory": directory.url,
            "fleet_key_file": str(key_file),
            "fleet_wait_seconds": 120.0,  # the tests' machine may be busy; what is late is not tested here
        }
        own = {"HOST_TIER_ON_CPU": "1", "TRUST_PAGES_FILE": str(trusting), **environment}
        with (
            start(folder / "a.jsonl", *flags, environment=own, **options) as a,
            start(folder / "b.jsonl", *flags, environment=own, **options) as b,
        ):
            yield Fleet(a, b, directory, trusting, folder / "b.jsonl")


def ask(server: EngineServer, prompt: Sequence[int], **more: Any) -> Reply:
    return generate(server.base_url, prompt, **{"max_new_tokens": 8, "top_logprobs": 5, **more})


def log_of(server: EngineServer) -> str:
    return server.log_path.read_text(encoding="utf-8", errors="replace")


def alike(left: Reply, right: Reply) -> None:
    """The same answer, and the same log-probabilities up to rounding."""
    assert left.tokens == right.tokens
    assert [token for _, token in left.first_top] == [token for _, token in right.first_top]
    for (one, _), (other, _) in zip(left.first_top, right.first_top, strict=True):
        assert abs(one - other) < 1e-3
