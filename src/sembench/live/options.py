"""What a live run was asked to do: everything that decides its rows, and nothing that only decides where it runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from sembase.errors import ConfigurationError
from sembench.http.request import Endpoint

Arms = Literal["warm", "cold", "paired", "cold_twice"]


@dataclass(frozen=True, slots=True)
class LiveOptions:
    """``arms``: the warm recipient after its donors, the cold one alone, both per item in a drawn order, or the cold
    one twice, which shows what "equal" means on this server.

    ``settle_ms`` bounds every wait for the engine's events; ``check_propagation`` is the share of blended items that
    are asked again with reuse off. ``reset_per_item`` off leaves an unpaired run's caches as they are.
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


@dataclass(frozen=True, slots=True)
class LiveRun:
    """``kind`` names the runner in the result. ``donor_url`` is where donors go when not to ``base_url``.

    ``connector_audit`` has one file per engine behind the address. ``headers`` may hold keys: they go with every
    request and into no file.
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
    resume: bool = False

    def require_sound(self) -> None:
        """Rejects combinations that cannot give a valid figure, before anything is sent."""
        chosen = self.options
        resets = self.recipient_reset_urls or (self.reset_urls and chosen.reset_per_item)
        if chosen.concurrency > 1 and resets:
            raise ConfigurationError(
                f"--concurrency {chosen.concurrency} with resets: a reset clears the caches of all requests in flight. "
                "Run with --concurrency 1, or give no reset urls: then the arms are kept apart by tenant"
            )
        if chosen.check_propagation and chosen.concurrency > 1:
            raise ConfigurationError(
                "--check-propagation needs --concurrency 1: other requests fill the exact cache it looks at"
            )
        if chosen.check_propagation and not self.connector_audit:
            raise ConfigurationError(
                "--check-propagation needs --connector-audit: only the engine can say which requests were blended"
            )
        if chosen.check_propagation and chosen.arms in ("cold", "cold_twice"):
            raise ConfigurationError("--check-propagation looks at blended requests, and a cold run has none")

    @property
    def isolation(self) -> str:
        """What keeps requests of one item and arm from serving another: resets, tenants of their own, or nothing."""
        if self.reset_urls and self.options.reset_per_item:
            return "reset"
        return "none" if self.options.arms == "warm" else "tenant"

    def config(self, tokenizer: dict[str, Any] | None, model: str) -> dict[str, Any]:
        """The settings block of the result, and what must be equal for rows of two attempts to be of one run."""
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
