"""What a server started by one command line would do with SemBlend, and why. Filled by one check per engine."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from semblend.doctor.model_facts import ModelFacts


class State(StrEnum):
    READY = "ready"  # if the self-test at the server's start passes
    PREFIX_ONLY = "prefix_only"
    DISABLED = "disabled"
    START_FAILS = "start_fails"
    UNCHECKED = "unchecked"


@dataclass(frozen=True, slots=True)
class Verdict:
    """``notes`` do not change the state: an unverified version, a platform that is experimental."""

    state: State
    reason: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Checked:
    """A verdict and what the engine itself said about the deployment.

    ``environment``: variables of the engine that ``kvmend serve`` sets for it.
    """

    verdict: Verdict
    platform: str = ""
    model: ModelFacts | None = None
    facts: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
