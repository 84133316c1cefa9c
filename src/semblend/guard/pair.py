"""The two questions of a check and their answers: a client's request in; blended and cold bodies, then a KL, out.

Both ask for the first tokens of the likeliest answer, each with its 20 likeliest rivals, and are compared as long as
they say the same: one token alone misses much of what goes wrong. The blended one goes first: the cold one leaves exact
blocks behind, which would serve it. Neither becomes a donor. Everything that makes the prompt stays, the tenant's salt
included.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from semblend.contract import Outcome, PlanShape
from semblend.guard.divergence import kl_lower_bound

TOP: Final = 20  # what engines give by default at most
ANSWER_TOKENS: Final = 16
CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
PATHS: Final = frozenset({CHAT, TEXT})
KEY: Final = "semblend"
# They shape the answer, not the prompt; log-probabilities are read before them.
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
    """``tokens``: at each position the likeliest tokens, the first of which was said. Of a blend, where the engine
    confirmed one: its class and what the plan said of it. None otherwise."""

    model: str
    tokens: tuple[Mapping[str, float], ...]
    shape: PlanShape | None
    risk: float | None = None
    share: float | None = None  # of the loaded tokens, computed after all
    predicted_kl: float | None = None


class AnswerError(ValueError):
    """The engine's reply holds no token with its log-probabilities."""


def pair_of(path: str, body: bytes, priority: int | None = None) -> Pair | None:
    """None for what cannot be checked: no JSON, several prompts, or a request that asked for no reuse itself."""
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
        said = json.loads(reply)
        found = said["choices"][0]["logprobs"]
        if "content" in found:
            lists = [{one["token"]: one["logprob"] for one in each["top_logprobs"]} for each in found["content"]]
        else:
            lists = found["top_logprobs"]
        tokens = tuple(_likeliest(each) for each in lists[:ANSWER_TOKENS])
        if not tokens or not all(tokens):
            raise AnswerError("no log-probabilities")
        provenance = (said.get("kv_transfer_params") or {}).get(KEY) or {}
        if provenance.get("outcome") != Outcome.BACKEND_MATERIALIZED_REUSE.value:
            return Answer(str(said["model"]), tokens, None)
        known = (
            None if (value := provenance.get(name)) is None else float(value)
            for name in ("context_risk", "compute_share", "predicted_kl")
        )
        return Answer(str(said["model"]), tokens, PlanShape(provenance["class"]), *known)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError) as error:
        raise AnswerError(f"{type(error).__name__}: {error}") from None


def _likeliest(listed: Mapping[str, Any]) -> dict[str, float]:
    """Engines add the chosen token when it is none of the likeliest; only these bound what is not listed."""
    return dict(sorted(((token, float(value)) for token, value in listed.items()), key=lambda each: -each[1])[:TOP])


def divergence(cold: Answer, blended: Answer) -> float:
    """Mean lower bound of KL over the positions before which both said the same; at the first difference it ends."""
    total, count = 0.0, 0
    for true, other in zip(cold.tokens, blended.tokens, strict=False):
        total += kl_lower_bound(true, other)
        count += 1
        if next(iter(true)) != next(iter(other)):
            break
    return total / count
