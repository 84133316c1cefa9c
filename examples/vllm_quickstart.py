"""A real vLLM server on this machine's CPU: ask about a long text twice, cold and with its prefix cached.

``make engine-vllm`` installs the engine and a small real model; without them this says so and ends.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from scripts.engines.chat import Answer, ask
from scripts.engines.server import launch
from scripts.engines.specs import SERVED_NAME, EngineOptions, vllm_missing, vllm_spec

PLACES = ("the harbour", "the mill", "the glass works", "the locks", "the garden", "the clock tower")


def note(n: int) -> str:
    way = f"from {PLACES[n % 6]} to {PLACES[(n * 5 + 1) % 6]} in {n * 7 % 50 + 10} minutes"
    return f"Note {n}: on day {n % 28 + 1} a party of {n % 5 + 2} walked {way} and paid {n * 13 % 90 + 5} euros."


DIARY = "\n".join(note(n) for n in range(1, 61))


def show(label: str, answer: Answer) -> None:
    share = f"{answer.cached_tokens or 0} of {answer.prompt_tokens} prompt tokens from the cache"
    print(f"{label:<5} first token after {answer.first_token_s:.2f} s, {share}: {answer.text.strip()!r}", flush=True)


def main() -> None:
    missing = vllm_missing()
    if missing:
        print(f"skipped: {missing}")
        return
    print("starting vLLM on the CPU ...", flush=True)
    with launch(vllm_spec(EngineOptions(extra=("--enable-prompt-tokens-details",)))) as server:
        print(f"{server.base_url} is healthy after {server.startup_s:.0f} s", flush=True)
        ask(server.base_url, "Say hello.", model=SERVED_NAME, max_tokens=4)  # the first request of all pays for warm-up
        for label in ("cold", "again"):
            show(label, ask(server.base_url, "What is the capital of France?", system=DIARY, model=SERVED_NAME))
    print("the server has ended")


if __name__ == "__main__":
    main()
