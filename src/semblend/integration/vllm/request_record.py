"""What the scheduler half knows of one request beyond what every adapter tracks."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from semblend.integration.core.request_record import RequestRecord

if TYPE_CHECKING:
    from vllm.v1.metrics.stats import PrefillStats
    from vllm.v1.request import Request

    from semblend.integration.vllm.look_up_thread import PendingLookUp


@dataclass(slots=True)
class VllmRequest(RequestRecord):
    request: Request = field(kw_only=True)
    asked_at: tuple[int, int] | None = None  # the boundary and the version of the donors that the answer holds for
    pending: PendingLookUp | None = None  # a look-up on its own thread
    cached: tuple[tuple[int, ...], ...] = ()  # for each run of the plan its donor's blocks, pinned in this pass
    may_pin: bool = True  # False once a claim with pinned blocks was not accepted: they may be what the engine lacked
    due: tuple[str, ...] = ()  # passages that make this request be served cold, so that they get a donor
    outputs_at_load: int = 0
    prefill_stats: PrefillStats | None = None  # of the claimed prefill; the engine sends it with the first token
    is_allocated: bool = False  # the engine has given it blocks at least once
    text: str | None = None  # set by the decoder's thread
    arrived_s: float = field(default_factory=time.monotonic)

    @property
    def is_plain(self) -> bool:
        """Tokens and nothing else: no images, no embeddings."""
        return len(self.tokens) > 0 and not self.request.mm_features and self.request.prompt_embeds is None

    def drop_look_up(self) -> None:
        """The request no longer waits for the look-up on its way."""
        if self.pending is not None:
            self.pending.is_dropped = True
            self.pending = None
