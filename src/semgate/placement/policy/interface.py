"""What a routing policy is: a case in, a choice out, a note of every placement, and the evidence it needs.

A new policy is one file in this folder and its line in ``registry.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from sembase.errors import ConfigurationError
from semgate.placement.case import Case, Choice


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyOptions:
    """Each policy reads the options it uses.

    ``leading_blocks``: blocks that identify a prefix (prefix_hash, replication). ``donor_worth``: fraction of a donor's
    tokens that reuse is expected to save after loading and recomputing seams. ``scattered_worth``: the same for equal
    text that is not at the beginning of the prompt, 0 for engines without a connector. ``gather_worth``: fraction of
    the prefill credited to a replica for content it was sent before and no longer holds: computed there, the content
    joins the rest of its session; computed elsewhere, it becomes a second copy. ``max_prefixes``, ``max_contents``:
    bounds of the histories. ``max_copies``: replicas a hot prefix may be spread over. ``announce_lag_s``: how long a
    routed prefix may be missing from the engine's announcements and still be counted. ``fetch_ms`` and
    ``fetch_ms_per_token``: time to fetch a donor from the fleet's store, and per token of it; None: nothing is fetched.
    """

    leading_blocks: int = 16
    donor_worth: float = 0.6
    scattered_worth: float = 0.25
    gather_worth: float = 0.25
    max_prefixes: int = 65_536
    max_contents: int = 131_072
    max_copies: int = 4
    announce_lag_s: float = 2.0
    fetch_ms: float = 0.0
    fetch_ms_per_token: float | None = None

    def __post_init__(self) -> None:
        for name in ("leading_blocks", "max_prefixes", "max_contents", "max_copies"):
            if getattr(self, name) < 1:
                raise ConfigurationError(f"placement option {name} must be at least 1")
        for name in ("donor_worth", "scattered_worth", "gather_worth"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise ConfigurationError(f"placement option {name} must be a fraction between 0 and 1")
        if self.announce_lag_s < 0.0:
            raise ConfigurationError("placement option announce_lag_s must be 0 seconds or more")
        if min(self.fetch_ms, self.fetch_ms_per_token or 0.0) < 0.0:
            raise ConfigurationError("placement options fetch_ms and fetch_ms_per_token must be 0 or more")


@dataclass(frozen=True, slots=True)
class Needs:
    """The evidence the router collects for a policy; what a policy ignores is not computed.

    ``tokens``: token ids, and with them block keys and donors. ``required`` warns at start-up if there is no tokenizer.
    ``text``: labelled contents; ``fallback`` collects them only for requests without token ids.
    """

    tokens: Literal["required", "used", "ignored"] = "used"
    text: Literal["used", "fallback", "ignored"] = "used"


class Policy(Protocol):
    name: str
    needs: Needs

    def choose(self, case: Case) -> Choice: ...

    def placed(self, case: Case, chosen: int) -> None:
        """The request was placed on ``case.candidates[chosen]``."""

    def forget(self, slot: int) -> None:
        """The replica of this slot is gone, or its cache is empty."""


class Stateless:
    """The two hooks of a policy without memory; it gets all evidence unless it says what it needs."""

    needs: Needs = Needs()

    def placed(self, case: Case, chosen: int) -> None:
        return None

    def forget(self, slot: int) -> None:
        return None
