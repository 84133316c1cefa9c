"""A real vLLM server with SemBlend on this machine's CPU: a text asked about cold, again, and under a new instruction.

``make engine-vllm`` installs the engine and a small real model; without them this says so and ends. ``--url`` asks a
server that is already running.
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from scripts.engines.chat import Answer, ask, served_model
from scripts.engines.server import EngineStartError, launch
from scripts.engines.specs import SERVED_NAME, EngineOptions, native_dtype, semblend_flags, vllm_missing, vllm_spec

PLACES = ("the harbour", "the mill", "the glass works", "the locks", "the garden", "the clock tower")


def note(n: int) -> str:
    way = f"from {PLACES[n % 6]} to {PLACES[(n * 5 + 1) % 6]} in {n * 7 % 50 + 10} minutes"
    return f"Note {n}: on day {n % 28 + 1} a party of {n % 5 + 2} walked {way} and paid {n * 13 % 90 + 5} euros."


QUESTION = "How many euros were paid in note 17?"
DIARY = "\n".join(note(n) for n in range(1, 61))


def show(label: str, answer: Answer) -> None:
    known = "an unknown number" if answer.cached_tokens is None else answer.cached_tokens
    cached = f"{known} of {answer.prompt_tokens} prompt tokens from the cache"
    print(f"{label:<16} first token after {answer.first_token_s:.2f} s, {cached}: {answer.text.strip()!r}")
    print(f"{'':<16} request {answer.request_id}", flush=True)


def ask_three_times(base_url: str, model: str) -> None:
    ask(base_url, "Say hello.", model=model, max_tokens=4)  # the first request of all pays for warm-up
    other = f"You are given a traveller's diary. Be brief.\n\n{DIARY}"
    for label, system in {"cold": DIARY, "again": DIARY, "new instruction": other}.items():
        show(label, ask(base_url, QUESTION, system=system, model=model))


def main() -> int:
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    words.add_argument("--wait", type=float, default=900, help="seconds to wait for the server (default: %(default)s)")
    words.add_argument("--url", help="ask the server at this address instead of starting one")
    given = words.parse_args()
    if given.url:
        try:
            model = served_model(given.url)
        except OSError as error:
            print(f"no server answers at {given.url} ({error}); start one, or leave --url out", file=sys.stderr)
            return 3
        ask_three_times(given.url, model)
        return 0
    missing = vllm_missing()
    if missing:
        print(f"skipped: {missing}")
        return 0
    print("starting vLLM on the CPU: one to three minutes, more on a busy machine", flush=True)
    flags = ("--enable-prompt-tokens-details", *semblend_flags())
    options = EngineOptions(extra=flags, dtype=native_dtype(), startup_timeout_s=given.wait)
    try:
        server = launch(vllm_spec(options), tell=lambda line: print(f"  {line}", flush=True))
    except EngineStartError as error:
        print(f"{error}\n\nSet --wait SECONDS if it only needed more time.", file=sys.stderr)
        return 3
    with server:
        print(f"{server.base_url} is healthy after {server.startup_s:.0f} s", flush=True)
        ask_three_times(server.base_url, SERVED_NAME)
    print("the server has ended")
    return 0


if __name__ == "__main__":
    sys.exit(main())
