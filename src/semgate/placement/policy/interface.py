"""What a policy is: a case in, a choice out, and a note of what was placed so that it can learn from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from sembase.errors import ConfigurationError
from semgate.placement.case import Case, Choice


@dataclass(frozen=True, slots=True)
class PolicyOptions:
    """Every policy reads what it needs.

    ``leading_blocks``: blocks that name a prefix (prefix_hash, replication). ``donor_worth``: share of a donor's tokens
    that reuse is expected to save after loading and recomputing seams. ``scattered_worth``: the same for equal text
    that does not lead the prompt, 0 for engines without a connector. ``gather_worth``: share of the prefill of content
    that was routed to a replica and is not held there any more: computed there again it joins the rest of its session,
    elsewhere it would be a second copy. ``most_prefixes``, ``most_contents``: bounds of
    the histories. ``most_copies``: replicas a hot prefix may be spread over. ``announce_lag_s``: how long a routed
    prefix may be missing from the engine's announcements and still be counted.
    """

    leading_blocks: int = 16
    donor_worth: float = 0.6
    scattered_worth: float = 0.25
    gather_worth: float = 0.25
    most_prefixes: int = 65_536
    most_contents: int = 131_072
    most_copies: int = 4
    announce_lag_s: float = 2.0

    def __post_init__(self) -> None:
        for name in ("leading_blocks", "most_prefixes", "most_contents", "most_copies"):
            if getattr(self, name) < 1:
                raise ConfigurationError(f"placement option {name} must be at least 1")
        for name in ("donor_worth", "scattered_worth", "gather_worth"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise ConfigurationError(f"placement option {name} is a share between 0 and 1")
        if self.announce_lag_s < 0.0:
            raise ConfigurationError("placement option announce_lag_s is a time in seconds, 0 or more")


class Policy(Protocol):
    name: str

    def choose(self, case: Case) -> Choice: ...

    def placed(self, case: Case, place: int) -> None:
        """The request went to ``case.candidates[place]``, by this policy or in spite of it."""

    def forget(self, slot: int) -> None:
        """The replica of this slot is gone or its cache is empty."""


class Stateless:
    """The two hooks of a policy that remembers nothing."""

    def placed(self, case: Case, place: int) -> None:
        return None

    def forget(self, slot: int) -> None:
        return None
