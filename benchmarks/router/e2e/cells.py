"""One policy under one load: caches emptied, a router started, ``kvmend bench run-live-gateway`` through it.

In: two running engines and a manifest; out: the result of sembench, from which ``figures`` computes its figures.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scripts.engines.ports import free_port, is_free
from scripts.engines.server import EngineServer, ServerSpec
from scripts.engines.specs import SERVED_NAME, EngineOptions, semblend_flags, vllm_spec
from scripts.models.known import SMOLLM2

from benchmarks.console import progress
from benchmarks.documents import ROOT
from benchmarks.equal_threads import launch, launch_all
from sembase.latency import CALIBRATION_SCHEMA, LatencyModel

BLOCK_TOKENS = 128
BYTES_PER_TOKEN = SMOLLM2.kv_bytes_per_token()
OUTPUT_TOKENS = 8
RESET = "/reset_prefix_cache?reset_external=true"
RESET_PATIENCE_S = 30.0
CALIBRATION_TOKENS = (128, 512, 1024)
CALIBRATION_ROUNDS = 3

_direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@dataclass(frozen=True, slots=True)
class Replica:
    """A running engine and where it announces blocks and donors."""

    server: EngineServer
    name: str
    events: str
    replay: str
    donors: str
    audit: Path

    @property
    def as_flag(self) -> str:
        return f"{self.server.base_url};name={self.name};events={self.events};replay={self.replay};donors={self.donors}"


@contextmanager
def serving(folder: Path, cache_tokens: int, donor_tokens: int) -> Iterator[tuple[list[Replica], Path]]:
    """Two engines, a core each, and the key that they share with the router."""
    key_file = folder / "donors.key"
    key_file.write_text("a key for a benchmark on loopback\n")
    planned = []
    for _ in range(2):
        ports = (free_port(), free_port(), _adjacent_ports())
        events, replay, donors = (f"tcp://127.0.0.1:{port}" for port in ports)
        planned.append((events, replay, donors))
    specs = [
        _spec(number, folder, key_file, endpoints, cache_tokens, donor_tokens)
        for number, endpoints in enumerate(planned)
    ]
    servers = launch_all(specs)
    try:
        yield [Replica(server, f"r{n}", *planned[n], _audit(folder, n)) for n, server in enumerate(servers)], key_file
    finally:
        for server in servers:
            server.stop()


def _audit(folder: Path, number: int) -> Path:
    return folder / f"events-{number}.jsonl"


def _adjacent_ports() -> int:
    """A free port whose neighbour is free too: replays of donor events are requested there."""
    while True:
        port = free_port()
        if is_free(port + 1):
            return port


def _spec(
    number: int, folder: Path, key_file: Path, endpoints: tuple[str, str, str], cache_tokens: int, donor_tokens: int
) -> ServerSpec:
    events, replay, donors = endpoints
    announced = {
        "enable_kv_cache_events": True,
        "publisher": "zmq",
        "endpoint": events.replace("127.0.0.1", "*"),
        "replay_endpoint": replay.replace("127.0.0.1", "*"),
    }
    flags = (
        *semblend_flags({"events": str(_audit(folder, number)), "host_bytes": donor_tokens * BYTES_PER_TOKEN}),
        *("--enable-prompt-tokens-details", "--kv-events-config", json.dumps(announced)),
        *("--num-gpu-blocks-override", str(cache_tokens // BLOCK_TOKENS), "--max-model-len", "4096"),
    )
    options = EngineOptions(
        extra=flags,
        cores=str(number),
        kv_cache_gib=1,
        dev_mode=True,
        startup_timeout_s=600.0,
        environment={
            "SEMBLEND_DONOR_EVENTS": donors,
            "SEMBLEND_DONOR_EVENTS_KEY_FILE": str(key_file),
            "SEMBLEND_EMBEDDER": "none",
        },
    )
    return vllm_spec(options)


def warm_up(replicas: list[Replica]) -> None:
    """Lazy loading in the engine must not slow down the first request of a policy."""
    text = " ".join(f"Line {number} of a text that only wakes the server up." for number in range(60))
    for replica in replicas:
        for opening in ("First.", "Once more.", "And again."):
            _complete(replica, f"{opening} {text}")


def calibrate(replicas: list[Replica], folder: Path, seed: int) -> Path:
    """The cost of prefill on these servers, as an operator would measure it: a line fitted to cold prompts."""
    draws = random.Random(seed)
    measured: list[tuple[int, float]] = []
    for tokens in CALIBRATION_TOKENS * CALIBRATION_ROUNDS:
        for replica in replicas:
            prompt = [draws.randrange(1_000, 40_000) for _ in range(tokens)]
            started = time.perf_counter()
            body = {"model": SERVED_NAME, "prompt": prompt, "max_tokens": 1}
            _post(f"{replica.server.base_url}/v1/completions", body)
            measured.append((tokens, (time.perf_counter() - started) * 1e3))
    medians = [float(np.median([ms for size, ms in measured if size == tokens])) for tokens in CALIBRATION_TOKENS]
    slope, base = np.polyfit(CALIBRATION_TOKENS, medians, 1)
    model = LatencyModel(base_ms=max(float(base), 0.0), ms_per_uncached_token=float(slope), source="calibrated")
    path = folder / "calibration.json"
    path.write_text(json.dumps({"schema": CALIBRATION_SCHEMA, "model": model.as_record()}))
    progress(f"prefill costs {model.base_ms:.0f} ms and {slope:.2f} ms per token (n = {len(measured)})")
    return path


def empty_caches(replicas: list[Replica]) -> None:
    for replica in replicas:
        deadline = time.monotonic() + RESET_PATIENCE_S
        while not _reset(replica.server.base_url):
            if time.monotonic() > deadline:
                raise SystemExit(f"{replica.name}: its caches could not be emptied; see {replica.server.log_path}")
            _complete(replica, "ok")
            time.sleep(0.1)
        _complete(replica, "ok")  # a step, so that the workers drop what the scheduler forgot


def _complete(replica: Replica, prompt: str) -> None:
    _post(f"{replica.server.base_url}/v1/completions", {"model": SERVED_NAME, "prompt": prompt, "max_tokens": 2})


def _reset(base_url: str) -> bool:
    body = _post(base_url + RESET, None)
    return not (isinstance(body, dict) and body.get("success") is False)


def _post(url: str, body: dict[str, Any] | None) -> Any:
    data = b"" if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method="POST")
    try:
        with _direct.open(request, timeout=300) as answer:
            text = answer.read()
    except urllib.error.HTTPError as error:
        return {"success": False, "status": error.code}
    return json.loads(text) if text.strip().startswith(b"{") else None


@contextmanager
def routing(
    policy: str, replicas: list[Replica], key_file: Path, calibration: Path, folder: Path
) -> Iterator[EngineServer]:
    command = (
        *(
            sys.executable,
            "-m",
            "semgate",
            "router",
            "--port",
            "{port}",
            "--routing-policy",
            policy,
            "--tell-shared-evidence",
            "true",
        ),
        *("--replicas", ",".join(replica.as_flag for replica in replicas), "--tokenizer", str(SMOLLM2.folder)),
        *("--block-tokens", str(BLOCK_TOKENS), "--donors-key-file", str(key_file), "--log-level", "warning"),
        *("--latency-model", str(calibration)),
        *("--routing-output-dir", str(folder / "routing" / policy)),
    )
    spec = ServerSpec(f"router-{policy}", command, health_path="/readyz", startup_timeout_s=90.0, stop_timeout_s=10.0)
    router = launch(spec)
    try:
        yield router
    finally:
        router.stop()


def measure(
    router: EngineServer, replicas: list[Replica], manifest: Path, output: Path, concurrency: int, seed: int
) -> dict[str, Any]:
    """What a user would run; the reuse reported by the engines is joined from their event files."""
    command = (
        *("run-live-gateway", "--manifest", str(manifest), "--output", str(output), "--gateway-url", router.base_url),
        *("--endpoint", "completions", "--concurrency", str(concurrency), "--block-size", str(BLOCK_TOKENS)),
        *("--recipient-max-tokens", str(OUTPUT_TOKENS), "--warm-up", "0", "--seed", str(seed)),
        *(word for replica in replicas for word in ("--connector-audit", str(replica.audit))),
    )
    done = subprocess.run(
        [sys.executable, "-m", "sembench", *command], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(
            f"kvmend bench run-live-gateway ended with {done.returncode}:\n{done.stderr[-2000:]}\n"
            f"the router's log: {router.log_path}; continue with --resume"
        )
    result: dict[str, Any] = json.loads(output.read_text())
    return result
