"""The interface of a provider, which suggests donors beyond the exact match. Its suggestions are always verified.

A provider suggests tokens that are in the tree; the cache serves only positions where they equal the request's own.
"""

# ruff: noqa: B027 - optional methods of a provider

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sembase.errors import ConfigurationError
from sembase.registry import load_target
from semblend.contract import Decline, Namespace, ReusePlan
from semblend.contract.donor_event import Tier

TokenIds = Sequence[int] | NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class SemanticPrefixResult:
    """A suggestion: ``alternate_token_ids`` are cached, and parts of them equal parts of the request.

    ``num_cached_tokens`` is what the provider expects to be reused; a hint, not a promise. ``skip_insert`` keeps the
    request out of the tree altogether; without it the part computed exactly is still inserted, and nothing else.
    ``source_id`` names the donor in logs. ``metadata`` may carry a verified plan under ``plan``.
    """

    alternate_token_ids: TokenIds
    num_cached_tokens: int = 0
    skip_insert: bool = False
    metadata: Mapping[str, Any] = field(default_factory=dict)
    source_id: str | None = None


@dataclass(frozen=True, slots=True)
class StagedRequest:
    """A request about to be looked up: its tokens, its namespace, and the exact prefix it already has."""

    rid: str
    token_ids: NDArray[np.uint32]
    namespace: Namespace
    exact_prefix_tokens: int


class SemanticPrefixProvider(ABC):
    """Every method runs on the scheduler's thread and must be fast; do slow work elsewhere, before the call."""

    @property
    def version(self) -> int:
        """Changes whenever the same look-up may have another answer; waiting requests are then looked up again."""
        return 0

    def on_init(self) -> None:
        """The cache is ready."""

    def on_request_staged(self, request: StagedRequest) -> None:
        """Before ``on_prefix_miss``: the request, its namespace and its exact prefix."""

    @abstractmethod
    def on_prefix_miss(self, rid: str, token_ids: TokenIds) -> SemanticPrefixResult | None:
        """The exact match ends before the prompt does. ``None`` means cold prefill."""

    def declined(self, rid: str) -> Decline | None:
        """Why the last ``on_prefix_miss`` of a request returned nothing, if the provider knows."""
        return None

    def on_request_blended(self, rid: str, plan: ReusePlan, exact_tokens: int) -> None:
        """The request was served with the suggestion; from ``exact_tokens`` on its KV is approximate."""

    @abstractmethod
    def on_request_cached(self, rid: str, token_ids: TokenIds) -> None:
        """These tokens of a request are now in the tree with exact KV: it may become a donor."""

    def on_request_released(self, rid: str) -> None:
        """The request no longer holds KV: finished, aborted, or sent back to the queue."""

    def on_donor_lost(self, source_id: str, cached_tokens: int) -> None:
        """Only the first ``cached_tokens`` of a suggested donor are still in the tree."""

    def on_donor_seen(self, source_id: str, tier: Tier) -> None:
        """A suggested donor is complete, and ``tier`` is the farthest one that holds a part of it."""

    def on_reset(self) -> None:
        """The tree was emptied."""

    def on_shutdown(self) -> None:
        """The process ends."""


class NoProvider(SemanticPrefixProvider):
    """Suggests nothing: the engine prefills every request."""

    def on_prefix_miss(self, rid: str, token_ids: TokenIds) -> SemanticPrefixResult | None:
        return None

    def on_request_cached(self, rid: str, token_ids: TokenIds) -> None:
        pass


def load_provider(name: str) -> SemanticPrefixProvider:
    """The provider a deployment names as ``package.module:Class``, constructed without arguments."""
    try:
        provider = load_target(name)()
    except (ImportError, AttributeError, ValueError, TypeError) as error:
        raise ConfigurationError(f"provider '{name}' cannot be loaded ({error}); write package.module:Class") from error
    if not isinstance(provider, SemanticPrefixProvider):
        raise ConfigurationError(f"provider '{name}' is not a SemanticPrefixProvider")
    return provider
