"""A broken prefix in front of 8K to 64K tokens: what look-up, load, verification and gaps cost, and how they grow.

The model has two layers and random weights, so only times count here, not answers: prefill of a real model costs much
more per token, our own parts nearly the same per layer. Each item is a text behind another id in its head: cold, the
exact hit, and ours, in a row, on one server, with the default gates.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from statistics import median
from typing import Any, Final

import numpy as np
from scripts.engines.specs import vllm_missing
from scripts.models.known import SMOLLM2, KnownModel

from benchmarks.console import RESULTS, exit_code, progress, show_table, show_verdicts, write_results
from benchmarks.targets import Verdict
from benchmarks.vllm.client import Ask
from benchmarks.vllm.servers import Subject, with_connector

HEAD_TOKENS: Final = 48
NEW_TOKENS: Final = 64
MAX_GROWTH: Final = 1.5  # of a part's time per token, from the shortest to the longest prompt
MODEL: Final = replace(
    SMOLLM2,
    name="two-random-layers",
    title="two layers of random weights",
    licence="none",
    packages=(),
    layers=2,
    kv_heads=2,
    positions=66_048,
)


@dataclass(frozen=True, slots=True)
class LongReading:
    tokens: int
    cold_ms: float
    exact_ms: float
    ours_ms: float
    reused_tokens: int
    outcome: str
    reason: str | None
    lookup_ms: float | None
    load_ms: float | None
    gap_ms: float | None


def make_model(model: KnownModel) -> None:
    """A Llama of ``model``'s shape with random weights, beside the real checkpoints; the tokenizer is SmolLM2's."""
    if model.missing() is None:
        return
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=model.vocabulary,
        hidden_size=4 * model.head_dim,
        intermediate_size=8 * model.head_dim,
        num_hidden_layers=model.layers,
        num_attention_heads=4,
        num_key_value_heads=model.kv_heads,
        head_dim=model.head_dim,
        max_position_embeddings=model.positions,
        dtype="bfloat16",
    )
    LlamaForCausalLM(config).bfloat16().save_pretrained(model.folder)
    for name in SMOLLM2.tokenizer_files:
        shutil.copy(SMOLLM2.folder / name, model.folder / name)


def measure(subject: Subject, tokens: int, number: int) -> LongReading:
    client, happenings = subject.client, subject.happenings
    assert happenings is not None
    random = np.random.default_rng([tokens, number])

    def drawn(count: int) -> list[int]:
        return [int(token) for token in random.integers(300, MODEL.vocabulary, count)]

    head, text, salt = drawn(HEAD_TOKENS), drawn(tokens), f"long-{tokens}-{number}"
    broken = [*head[:20], *drawn(4), *head[24:], *text, *drawn(NEW_TOKENS)]
    donor = client.timed(Ask([*head, *text], 2, salt, capture=True))
    if not happenings.wait_for_donor(
        donor.request_id, lambda: client.timed(Ask(drawn(8), 1, "poke", reuse=False)), timeout_s=120.0
    ):
        raise RuntimeError("the donor was not captured within two minutes")
    exact = client.timed(Ask([*head, *text, *broken[-NEW_TOKENS:]], 2, salt, reuse=False))
    ours = client.timed(Ask(broken, 2, salt))
    cold = client.timed(Ask(broken, 2, f"{salt}-cold", reuse=False))
    result = happenings.result(ours.request_id)
    return LongReading(
        tokens,
        cold.first_token_ms,
        exact.first_token_ms,
        ours.first_token_ms,
        result.reused_tokens,
        result.outcome,
        result.reason,
        result.lookup_ms,
        result.load_ms,
        result.compute_ms,
    )


def growth(readings: list[LongReading], part: Callable[[LongReading], float | None]) -> float | None:
    """Median time per token at the longest prompt over that at the shortest."""

    def per_token(tokens: int) -> float | None:
        found = [value / r.tokens for r in readings if r.tokens == tokens and (value := part(r)) is not None]
        return median(found) if found else None

    sizes = [reading.tokens for reading in readings]
    short, long = per_token(min(sizes)), per_token(max(sizes))
    return None if not short or long is None else long / short


PARTS: Final[dict[str, Callable[[LongReading], float | None]]] = {
    "look-up": lambda reading: reading.lookup_ms,
    "load and verification": lambda reading: reading.load_ms,
    "gaps": lambda reading: reading.gap_ms,
    "whole, over an exact hit": lambda reading: max(0.0, reading.ours_ms - reading.exact_ms),
}


def report(readings: list[LongReading]) -> list[Verdict]:
    rows = []
    for tokens in sorted({reading.tokens for reading in readings}):
        own = [reading for reading in readings if reading.tokens == tokens]
        rows.append(
            (
                tokens,
                len(own),
                *(_shown([value(r) for r in own]) for value in _COLUMNS),
                f"{median(r.cold_ms / r.ours_ms for r in own):.1f}x",
                f"{median(r.ours_ms / r.exact_ms for r in own):.2f}",
                f"{median(r.reused_tokens for r in own):.0f}",
            )
        )
    show_table(
        "A broken prefix before long prompts: medians in ms",
        ("tokens", "n", "cold", "exact", "ours", "look-up", "load", "gaps", "cold/ours", "ours/exact", "reused"),
        rows,
    )
    verdicts = [
        Verdict(f"{name}: time per token, longest over shortest", "<=", MAX_GROWTH, growth(readings, part), "x")
        for name, part in PARTS.items()
    ]
    show_verdicts(verdicts)
    return verdicts


_COLUMNS: Final[tuple[Callable[[LongReading], float | None], ...]] = (
    lambda reading: reading.cold_ms,
    lambda reading: reading.exact_ms,
    lambda reading: reading.ours_ms,
    lambda reading: reading.lookup_ms,
    lambda reading: reading.load_ms,
    lambda reading: reading.gap_ms,
)


def main() -> int:
    arguments = _parse()
    if (missing := vllm_missing()) is not None:
        progress(f"nothing measured: {missing}")
        return 3
    make_model(MODEL)
    readings: list[LongReading] = []
    options: dict[str, Any] = {"host_bytes": 1 << 30}
    with with_connector(options, RESULTS / "long-prompts-events.jsonl", model=MODEL) as subject:
        for number in range(arguments.n):
            for tokens in arguments.tokens:
                readings.append(measure(subject, tokens, number))
                progress(f"{tokens} tokens, {number + 1} of {arguments.n}: {readings[-1]}")
                write_results("long-prompts", {"readings": [asdict(reading) for reading in readings]})
    return exit_code(report(readings), arguments.enforce)


def _shown(values: list[float | None]) -> str | None:
    known = [value for value in values if value is not None]
    return f"{median(known):.1f}" if known else None


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.vllm.long_prompts", description=__doc__)
    parser.add_argument("--tokens", nargs="+", type=int, default=[8_192, 16_384, 32_768, 65_536])
    parser.add_argument("--n", type=int, default=3, help="items per length (default: %(default)s)")
    parser.add_argument("--enforce", action="store_true", help="fail the run when a target is missed")
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
