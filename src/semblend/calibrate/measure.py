"""Blended and cold answers of a running server, compared: items in, observations and the noise floor out.

The cold request is sent last, because it leaves exact blocks that would serve the others. The requests of an item carry
a salt of their own, so that no tenant's KV is used and no other donor is found. A recipient that was not blended has
left exact blocks as well: it is tried again under another salt, after a longer wait for its donors to be stored.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from semblend.calibrate.engine import RefusedError
from semblend.calibrate.observations import Observation
from semblend.calibrate.prompts import CalibrationItem
from semblend.guard.pair import ANSWER_TOKENS, KEY, TOP, Answer, answer_of, divergence

FRACTIONS: Final = (0.0, 0.1, 0.2, 0.4)
STATISTIC: Final = f"{ANSWER_TOKENS} tokens of the answer, lower bound from the {TOP} likeliest"
_WAITS_S: Final = (0.3, 1.5, 7.5)  # a donor is stored a moment after its answer
_SAMPLES, _SAMPLE_WORDS = 10, 50
_USUAL_TOKENS_PER_WORD: Final = 1.5  # of a server that does not report what a prompt has
Ask = Callable[[bytes], bytes]


@dataclass(slots=True)
class Measured:
    """``floor_kl`` has one reading per item: KL between two cold answers. ``skipped`` items were refused or not
    blended; readings of another policy than the first one's are left out.

    The latter happens where an item lacks what the server's policy needs.
    """

    observations: list[Observation] = field(default_factory=list)
    floor_kl: list[float] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)

    @property
    def policy(self) -> str | None:
        """The policy of the first reading of which some tokens were recomputed."""
        return next((seen.policy for seen in self.observations if seen.policy is not None), None)


def measure(
    ask: Ask,
    model: str,
    items: Iterable[CalibrationItem],
    fractions: Sequence[float] = FRACTIONS,
    wait: Callable[[float], None] = time.sleep,
) -> Measured:
    """Items that the server refuses are skipped: some texts have more tokens than estimated. All refused: an error."""
    found = Measured()
    refusal: RefusedError | None = None

    def answer(prompt: str, salt: str, **hints: Any) -> Answer:
        return answer_of(ask(_body(model, prompt, salt, hints)))

    def observe(item: CalibrationItem) -> None:
        for seconds in _WAITS_S:
            salt = secrets.token_hex(16)
            for donor in item.donors:
                answer(donor, salt, reuse=False, capture=True)
            wait(seconds)
            first = answer(item.recipient, salt, share=fractions[0], capture=False)
            if first.shape is not None:
                break
        else:
            found.skipped.append(f"{item.name}: not blended")
            return
        blended = [first, *(answer(item.recipient, salt, share=each, capture=False) for each in fractions[1:])]
        cold, again = (answer(item.recipient, salt, reuse=False, capture=False) for _ in range(2))
        found.floor_kl.append(divergence(cold, again))
        for reply in blended:  # as reported: not every deployment recomputes the requested fraction
            if reply.shape is not None and reply.risk is not None and reply.fraction is not None:
                if reply.policy not in (None, policy := found.policy or reply.policy):
                    found.skipped.append(f"{item.name}: {reply.policy} selected, not {policy}")
                    continue
                kl = divergence(cold, reply)
                seen = Observation(item.name, reply.shape, reply.risk, reply.fraction, kl, reply.policy)
                found.observations.append(seen)

    for item in items:
        try:
            observe(item)
        except RefusedError as error:
            refusal = error
            found.skipped.append(f"{item.name}: {error}")
    if refusal is not None and not found.observations:
        raise refusal
    return found


def tokens_per_word(ask: Ask, model: str, text: str) -> float:
    """How the server's tokenizer splits the texts, from one prompt of samples all over them."""
    words = text.split()
    step = max(_SAMPLE_WORDS, len(words) // _SAMPLES)
    sample = [word for start in range(0, len(words), step) for word in words[start : start + _SAMPLE_WORDS]]
    reply = ask(_body(model, " ".join(sample), secrets.token_hex(16), {"reuse": False, "capture": False}))
    try:
        return int(json.loads(reply)["usage"]["prompt_tokens"]) / len(sample)
    except (ValueError, TypeError, KeyError, ZeroDivisionError):
        return _USUAL_TOKENS_PER_WORD


def _body(model: str, prompt: str, salt: str, hints: dict[str, Any]) -> bytes:
    record = {
        "model": model,
        "prompt": prompt,
        "max_tokens": ANSWER_TOKENS,
        "temperature": 0.0,
        "logprobs": TOP,
        "return_tokens_as_token_ids": True,
        "cache_salt": salt,
        "kv_transfer_params": {KEY: hints},
    }
    return json.dumps(record).encode()
