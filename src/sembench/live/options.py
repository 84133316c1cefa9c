"""The options of a live run: those that determine its rows (``LiveOptions``), and where it runs (``LiveRun``)."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from sembase.errors import ConfigurationError
from sembench.http.request import Endpoint

Arms = Literal["warm", "cold", "paired", "cold_twice"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveOptions:
    """``arms``: the warm recipient after its donors, the cold one alone, both per item in random order, or the cold one
    twice, which shows how far equal requests differ on this server.

    ``settle_ms`` limits every wait for the engine's events. ``check_propagation`` is the fraction of blended items that
    are sent again with reuse off. Without ``reset_per_item`` an unpaired run does not empty caches.
    """

    endpoint: Endpoint = "chat"
    arms: Arms = "warm"
    block_size: int = 16
    tokenizer: str | None = None
    donor_max_tokens: int = 1
    recipient_max_tokens: int = 24
    top_logprobs: int | None = None
    quality_threshold: float = 0.60
    tenant: str | None = None
    template: str | None = None
    post_donor_delay_ms: float = 0.0
    settle_ms: float = 5_000.0
    concurrency: int = 1
    check_propagation: float = 0.0
    warm_up: int = 2
    reset_per_item: bool = True
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveRun:
    """``kind`` names the runner in the result. ``donor_url`` receives the donors instead of ``base_url``.

    ``connector_audit`` has one file per engine behind the address. ``headers`` may contain secrets: they are sent with
    every request and never written to a file. ``only`` names the items to measure; None: all of them.
    """

    kind: str
    manifest: Path
    output: Path
    base_url: str
    options: LiveOptions = field(default_factory=LiveOptions)
    donor_url: str | None = None
    model: str | None = None
    reset_urls: tuple[str, ...] = ()
    recipient_reset_urls: tuple[str, ...] = ()
    metrics_url: str | None = None
    connector_audit: tuple[Path, ...] = ()
    headers: tuple[tuple[str, str], ...] = ()
    timeout_s: float = 900.0
    ready_s: float = 60.0
    max_items: int | None = None
    only: frozenset[str] | None = None
    resume: bool = False

    def require_valid(self) -> None:
        """Rejects combinations that cannot give a valid figure, before anything is sent."""
        chosen = self.options
        resets = self.recipient_reset_urls or (self.reset_urls and chosen.reset_per_item)
        if chosen.concurrency > 1 and resets:
            raise ConfigurationError(
                f"--concurrency {chosen.concurrency} with resets: a reset clears the caches of all requests in flight. "
                "Use --concurrency 1, or no reset URLs: then each arm has its own tenant"
            )
        if chosen.check_propagation and chosen.concurrency > 1:
            raise ConfigurationError(
                "--check-propagation needs --concurrency 1: other requests fill the exact cache that it inspects"
            )
        if chosen.check_propagation and not self.connector_audit:
            raise ConfigurationError(
                "--check-propagation needs --connector-audit: only the engine knows which requests were blended"
            )
        if chosen.check_propagation and chosen.arms in ("cold", "cold_twice"):
            raise ConfigurationError("--check-propagation needs blended requests, and a cold run has none")

    @property
    def isolation(self) -> str:
        """How items and arms are isolated from each other: by resets, by a tenant each, or not at all."""
        if self.reset_urls and self.options.reset_per_item:
            return "reset"
        return "none" if self.options.arms == "warm" else "tenant"

    def config(self, tokenizer: dict[str, Any] | None, model: str) -> dict[str, Any]:
        """The config block of the result. It must be equal for the rows of two attempts to belong to one run."""
        chosen = self.options
        return {
            "model": model,
            "endpoint": chosen.endpoint,
            "arms": chosen.arms,
            "isolation": self.isolation,
            "resets": len(self.reset_urls),
            "recipient_resets": len(self.recipient_reset_urls),
            "block_size": chosen.block_size,
            "tokenizer": tokenizer,
            "donor_max_tokens": chosen.donor_max_tokens,
            "recipient_max_tokens": chosen.recipient_max_tokens,
            "top_logprobs": chosen.top_logprobs,
            "quality_threshold": chosen.quality_threshold,
            "tenant": chosen.tenant,
            "template": chosen.template,
            "post_donor_delay_ms": chosen.post_donor_delay_ms,
            "settle_ms": chosen.settle_ms,
            "concurrency": chosen.concurrency,
            "check_propagation": chosen.check_propagation,
            "connector_audit": bool(self.connector_audit),
            "seed": chosen.seed,
        }
