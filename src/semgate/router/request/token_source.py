"""Where a request's token ids come from: the model's own files, an engine's /tokenize, or the request itself."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import asdict, is_dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from sembase.http.client import HttpClient
from semgate.http.request_body import Asked
from semgate.logs import log
from semgate.placement.policy.interface import Needs
from semgate.router.state.metrics import Sample
from semgate.router.state.roster import Roster
from semgate.settings import RouterSettings
from semgate.tokens.local import LocalTokens, given_tokens
from semgate.tokens.remote import EngineTokens


class TokenSource(Protocol):
    async def tokens_of(self, asked: Asked, body: bytes) -> NDArray[np.uint32] | None:
        """The token ids the engine will see, or None."""

    async def close(self) -> None: ...


class GivenTokens:
    """Without a tokenizer: the token ids of requests that contain them."""

    async def tokens_of(self, asked: Asked, body: bytes) -> NDArray[np.uint32] | None:
        return None if asked.prompt_tokens is None else given_tokens(asked.prompt_tokens)

    async def close(self) -> None:
        return None


def open_tokens(
    settings: RouterSettings, upstream: HttpClient, needs: Needs, roster: Callable[[], Roster]
) -> TokenSource:
    if settings.tokenizer is not None:
        return LocalTokens(settings.tokenizer)
    if settings.engine_tokenize:
        return EngineTokens(upstream, lambda: idlest_origin(roster()))
    if needs.tokens == "required":
        log(
            logging.WARNING,
            "no tokenizer: requests without token ids are placed by load alone",
            policy=settings.routing_policy,
            fix="set --tokenizer to the model's folder, or --engine-tokenize true",
        )
    return GivenTokens()


def idlest_origin(roster: Roster) -> str | None:
    """The replica that will tokenize; None if none is ready."""
    ready = [each for each in roster.fleet if each.state() == "ready"]
    return min(ready, key=lambda each: each.in_flight).endpoint.origin if ready else None


def token_samples(source: TokenSource) -> Iterable[Sample]:
    counters: Any = getattr(source, "counters", None)
    if is_dataclass(counters) and not isinstance(counters, type):
        for result, value in asdict(counters).items():
            yield (
                "counter",
                "semgate_tokenized",
                "Requests by how their token ids were obtained.",
                {"result": result},
                value,
            )
