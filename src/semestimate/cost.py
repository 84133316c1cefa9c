"""Prefill work in, seconds and money out: on a GPU and model on paper, or by the user's own calibration.

A load costs its bytes over the host link and a fixed overhead (look-up, plan, launches) for each request that loads;
where the user's own server was calibrated, a loaded token costs what the calibration found for a cached one.
Recomputed tokens are selected by probes and lie scattered, so each costs several prefilled ones.
Money is seconds at ``--price``, computed here only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from sembase.latency import LatencyModel
from semblend.contract import PlanShape
from semestimate.anywhere import Saved
from semestimate.hardware import Device, Model, rank_bytes, work_s
from semestimate.work import Work

OVERHEAD_S: Final = 5e-3
# A recomputed token over a prefilled one, probes included. Real servers at 1K tokens (a reused document beside an exact
# hit and a cold prefill of the same prompt): SmolLM2-135M 3.9, Gemma-3-270M 3.5, Qwen2.5-Coder-0.5B 2.6.
RECOMPUTED_COST: Final = 3.5


@dataclass(frozen=True, slots=True)
class Price:
    """Seconds of one server (all ``gpus`` of it) per unit of work."""

    name: str
    is_predicted: bool
    gpus: int
    s_per_token: float
    s_per_pair: float
    load_s_per_token: float
    kv_bytes_per_token: float | None
    gpu_hour: float | None = None  # money per GPU and hour
    currency: str = "$"

    def seconds(self, work: Work) -> float:
        return self.s_per_token * work.tokens + self.s_per_pair * work.pairs

    def net_seconds(self, saved: Mapping[PlanShape, Saved]) -> float:
        """What plans save once loading, recomputing and overhead are paid."""
        requests = sum(each.requests for each in saved.values())
        work = sum((each.work for each in saved.values()), Work())
        recomputed = sum((each.recomputed for each in saved.values()), Work())
        spent = self.load_s_per_token * work.tokens + RECOMPUTED_COST * self.seconds(recomputed)
        return self.seconds(work) - spent - OVERHEAD_S * requests

    def break_even_tokens(self, context_tokens: int) -> float | None:
        """Reused tokens of a prompt of this length from which a load is faster than prefill; None if never."""
        saved = self.s_per_token + self.s_per_pair * context_tokens / 2 - self.load_s_per_token
        return OVERHEAD_S / saved if saved > 0 else None

    def money(self, seconds: float) -> float | None:
        return None if self.gpu_hour is None else seconds / 3600 * self.gpus * self.gpu_hour


def price_on(device: Device, model: Model, gpu_hour: float | None = None) -> Price:
    return Price(
        name=f"{model.label} on {device.name}",
        is_predicted=True,
        gpus=model.ranks,
        s_per_token=work_s(Work(1, 0.0), model, device),
        s_per_pair=work_s(Work(0, 1.0), model, device),
        load_s_per_token=rank_bytes(model) / device.host_link,
        kv_bytes_per_token=rank_bytes(model) * (1 if model.is_replicated else model.ranks),
        gpu_hour=gpu_hour,
    )


def price_by(calibration: LatencyModel, name: str, gpu_hour: float | None = None) -> Price:
    return Price(
        name=f"calibration {name}",
        is_predicted=False,
        gpus=1,
        s_per_token=calibration.ms_per_uncached_token / 1e3,
        s_per_pair=calibration.ms_per_million_pairs / 1e9,
        load_s_per_token=calibration.ms_per_cached_token / 1e3,
        kv_bytes_per_token=None,
        gpu_hour=gpu_hour,
    )
