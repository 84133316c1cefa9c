"""Run one engine for a person: ``python -m scripts.engines.serve vllm [--port N] [-- more options of the engine]``.

Prints the address, runs until Ctrl-C, ends the engine.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Sequence
from types import FrameType

from scripts.engines.server import EngineServer, EngineStartError, ServerSpec
from scripts.engines.specs import MISSING, SERVED_NAME, SPECS, EngineOptions
from scripts.models.known import MODELS, SMOLLM2


def parse(words: Sequence[str]) -> tuple[str, EngineOptions]:
    """The engine's name and options; everything after ``--`` goes to the engine as it is."""
    ours, extra = list(words), []
    if "--" in ours:
        cut = ours.index("--")
        ours, extra = ours[:cut], ours[cut + 1 :]
    parser = argparse.ArgumentParser(
        prog="python -m scripts.engines.serve",
        description="Run one engine until Ctrl-C. Options after -- go to the engine.",
    )
    parser.add_argument("engine", choices=sorted(SPECS))
    parser.add_argument("--model", choices=list(MODELS), default=SMOLLM2.name, help="default: %(default)s")
    parser.add_argument("--port", type=int, help="default: a free one")
    parser.add_argument("--kv-cache-gib", type=int, default=2, help="memory for the KV cache (default: 2)")
    parser.add_argument("--cores", help="bind the compute threads, such as 0 or 0-1")
    parser.add_argument("--dev-mode", action="store_true", help="the engine's development endpoints, such as resets")
    chosen = parser.parse_args(ours)
    options = EngineOptions(
        model=MODELS[chosen.model],
        port=chosen.port,
        extra=tuple(extra),
        kv_cache_gib=chosen.kv_cache_gib,
        dev_mode=chosen.dev_mode,
        cores=chosen.cores,
    )
    return str(chosen.engine), options


def serve(spec: ServerSpec, model: str = SERVED_NAME) -> int:
    """Start, announce, wait; 0 when asked to end, 1 when the engine failed or ended by itself."""
    try:
        with EngineServer(spec) as server:
            print(f"[serve] starting {spec.name}, log in {server.log_path}", flush=True)
            server.wait_healthy()
            print(f"[serve] {server.base_url}/v1 serves {model} after {server.startup_s:.0f} s", flush=True)
            print("[serve] Ctrl-C ends it", flush=True)
            while server.is_running:
                time.sleep(0.5)
            print(f"[serve] {spec.name} ended by itself:\n{server.log_tail()}", file=sys.stderr)
            return 1
    except EngineStartError as error:
        print(f"[serve] {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"[serve] {spec.name} ended", flush=True)
        return 0


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def main(words: Sequence[str] | None = None) -> int:
    engine, options = parse(sys.argv[1:] if words is None else words)
    missing = MISSING[engine](options.model)
    if missing is not None:
        print(f"[serve] {missing}", file=sys.stderr)
        return 3
    signal.signal(signal.SIGTERM, _interrupt)
    return serve(SPECS[engine](options), options.model.name)


if __name__ == "__main__":
    raise SystemExit(main())
