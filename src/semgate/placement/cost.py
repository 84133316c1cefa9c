"""One unit, milliseconds: what a cached prefix saves and what a queue adds, calibrated or learnt online."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Final, Literal

import numpy as np

from sembase.latency import PAIRS_PER_UNIT, LatencyModel, read_latency_model
from semgate.placement.view import Floats

# A decoding stream makes every pass a little longer. Without a calibration this is an assumption, and small: it should
# spread requests whose prefill is done, not outweigh a cached prefix.
PRIOR_MS_PER_STREAM: Final = 0.5
Source = Literal["default", "given", "calibrated", "learnt"]


@dataclass(frozen=True, slots=True)
class Price:
    """What work costs on one replica. ``base_ms`` is the same on all replicas and never affects a choice."""

    base_ms: float
    ms_per_token: float
    _: KW_ONLY
    ms_per_million_pairs: float = 0.0
    ms_per_cached_token: float = 0.0
    ms_per_stream: float = PRIOR_MS_PER_STREAM
    source: Source = "default"

    def saved_ms(self, prompt_tokens: int, cached_tokens: Floats) -> Floats:
        """Predicted prefill saved with this many leading tokens cached. The last token is always computed."""
        cached = np.minimum(cached_tokens, max(prompt_tokens - 1, 0))
        saved: Floats = (self.ms_per_token - self.ms_per_cached_token) * cached
        if self.ms_per_million_pairs:
            # All pairs of the prompt minus those of the rest: exactly the pairs inside the cached part.
            saved = saved + self.ms_per_million_pairs * cached * (cached + 1.0) / (2.0 * PAIRS_PER_UNIT)
        return saved

    def wait_ms(
        self, queued_prefill_tokens: Floats, in_flight: Floats, head_tokens: Floats, head_age_ms: Floats
    ) -> Floats:
        """Predicted queueing: the prefill ahead, minus what its head has finished, plus decoding streams."""
        done_ms = np.minimum(self.ms_per_token * head_tokens, np.maximum(head_age_ms, 0.0))
        wait: Floats = self.ms_per_token * queued_prefill_tokens - done_ms + self.ms_per_stream * in_flight
        return wait


def price_of(model: LatencyModel) -> Price:
    return Price(
        model.base_ms + model.step_ms,
        model.ms_per_uncached_token,
        ms_per_million_pairs=model.ms_per_million_pairs,
        ms_per_cached_token=model.ms_per_cached_token,
        ms_per_stream=model.ms_per_decoding_stream or PRIOR_MS_PER_STREAM,
        source=model.source,
    )


def price_from_calibration(path: Path) -> Price:
    """The price in a ``calibration.json`` of ``kvmend simulate calibrate``."""
    model, _ = read_latency_model(path)
    return price_of(model)
