"""The two requests of a check and their answers: a client's request in; blended and cold bodies, then a KL, out.

Both request the first tokens of the greedy answer with the 20 most likely tokens at each position, and are compared up
to the first different token: a single token would miss much of the drift. The blended request is sent first, because
the cold one leaves exact blocks that would serve it. Neither becomes a donor. All fields that make up the prompt stay,
including the tenant's salt.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from semblend.contract import Outcome, PlanShape
from semblend.guard.divergence import kl_lower_bound

TOP: Final = 20  # the default maximum of the engines
ANSWER_TOKENS: Final = 16
CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
PATHS: Final = frozenset({CHAT, TEXT})
KEY: Final = "semblend"
# They affect the answer, not the prompt; log-probabilities are taken before them.
_OF_THE_ANSWER: Final = frozenset(
    (
        *("stream", "stream_options", "n", "best_of", "use_beam_search", "stop", "stop_token_ids"),
        *("min_tokens", "max_completion_tokens", "seed", "top_p", "top_k", "min_p", "logit_bias"),
        *("frequency_penalty", "presence_penalty", "repetition_penalty", "response_format"),
        *("structured_outputs", "guided_json", "guided_regex", "guided_choice", "guided_grammar"),
        *("prompt_logprobs", "echo", "suffix", "request_id"),
    )
)


@dataclass(frozen=True, slots=True)
class Pair:
    blended: bytes
    cold: bytes


@dataclass(frozen=True, slots=True)
class Answer:
    """``tokens``: the most likely tokens at each position, the generated one first. ``shape`` is that
    of the blend if the engine confirmed one."""

    model: str
    tokens: tuple[Mapping[str, float], ...]
    shape: PlanShape | None


class AnswerError(ValueError):
    """The engine's reply has no tokens with log-probabilities."""


def pair_of(path: str, body: bytes, priority: int | None = None) -> Pair | None:
    """None if the request cannot be checked: not JSON, several prompts, or reuse disabled by the request."""
    try:
        asked = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if path not in PATHS or not isinstance(asked, dict) or not _is_single(path, asked):
        return None
    passed = asked.get("kv_transfer_params") or {}
    own = passed.get(KEY) or {} if isinstance(passed, dict) else None
    if not isinstance(own, dict) or own.get("reuse") is False:
        return None
    kept = {name: value for name, value in asked.items() if name not in _OF_THE_ANSWER}
    kept |= {"max_tokens": ANSWER_TOKENS, "temperature": 0.0, "return_tokens_as_token_ids": True}
    kept |= {"logprobs": True, "top_logprobs": TOP} if path == CHAT else {"logprobs": TOP}
    if priority is not None:
        kept["priority"] = priority
    hints = ({**own, "capture": False}, {**own, "reuse": False, "capture": False})
    blended, cold = (json.dumps({**kept, "kv_transfer_params": {**passed, KEY: hint}}).encode() for hint in hints)
    return Pair(blended, cold)


def _is_single(path: str, asked: dict[str, Any]) -> bool:
    if path == CHAT:
        return isinstance(asked.get("messages"), list)
    prompt = asked.get("prompt")
    return isinstance(prompt, str) or (isinstance(prompt, list) and all(type(token) is int for token in prompt))


def answer_of(reply: bytes) -> Answer:
    try:
        record = json.loads(reply)
        found = record["choices"][0]["logprobs"]
        if "content" in found:
            lists = [{one["token"]: one["logprob"] for one in each["top_logprobs"]} for each in found["content"]]
        else:
            lists = found["top_logprobs"]
        tokens = tuple(_likeliest(each) for each in lists[:ANSWER_TOKENS])
        if not tokens or not all(tokens):
            raise AnswerError("no log-probabilities")
        provenance = (record.get("kv_transfer_params") or {}).get(KEY) or {}
        if provenance.get("outcome") != Outcome.BACKEND_MATERIALIZED_REUSE.value:
            return Answer(str(record["model"]), tokens, None)
        return Answer(str(record["model"]), tokens, PlanShape(provenance["class"]))
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError) as error:
        raise AnswerError(f"{type(error).__name__}: {error}") from None


def _likeliest(listed: Mapping[str, Any]) -> dict[str, float]:
    """The ``TOP`` most likely tokens. Engines may add the sampled token, which does not bound the unlisted ones."""
    return dict(sorted(((token, float(value)) for token, value in listed.items()), key=lambda each: -each[1])[:TOP])


def divergence(cold: Answer, blended: Answer) -> float:
    """Mean lower bound of KL over the positions up to and including the first different token."""
    total, count = 0.0, 0
    for true, other in zip(cold.tokens, blended.tokens, strict=False):
        total += kl_lower_bound(true, other)
        count += 1
        if next(iter(true)) != next(iter(other)):
            break
    return total / count
