"""The estimate as a JSON record (``sembench.roi.v1``) and as tables for a terminal."""

from __future__ import annotations

from dataclasses import asdict
from statistics import fmean
from typing import Any, Final

from sembench.console.table import NOT_MEASURED, Table
from sembench.report.cold import COLD_IS_A_MISS
from sembench.report.formats import milliseconds, percent
from sembench.roi.costs import MeasuredCosts
from sembench.roi.estimate import Band, BucketEstimate, RoiEstimate, RoiOptions
from sembench.roi.lengths import LengthHistogram
from sembench.roi.rate import ReuseRate

ROI_VERSION: Final = "sembench.roi.v1"


def as_record(
    found: RoiEstimate, histogram: LengthHistogram, costs: MeasuredCosts, rate: ReuseRate, options: RoiOptions
) -> dict[str, Any]:
    return {
        "roi_version": ROI_VERSION,
        "lengths": {"source": histogram.source, "requests": histogram.requests},
        "costs": {
            "source": costs.source,
            "reused_requests": len(costs.requests),
            "miss_requests": len(costs.miss_shares),
            "capture_requests": len(costs.capture_shares),
        },
        "reuse_rate": asdict(rate),
        "options": asdict(options),
        "notes": notes(found, costs, rate, options),
        **{key: value for key, value in asdict(found).items() if key != "curve"},
        "curve": [{"reuse_rate": share, **asdict(band)} for share, band in found.curve],
    }


def notes(found: RoiEstimate, costs: MeasuredCosts, rate: ReuseRate, options: RoiOptions) -> list[str]:
    """The assumptions behind the estimate, shown with every result."""
    assumptions = [
        f"Reuse rate: {rate.source}; assumed to be the same at every length.",
        f"Costs: {costs.source}, measured from {found.measured_low:,} to {found.measured_high:,} tokens and "
        "interpolated in between.",
    ]
    if costs.miss_shares:
        assumptions.append(
            f"A miss costs the same fraction of the cold time at every length ({len(costs.miss_shares)} measured)."
        )
    else:
        assumptions.append("The cost of a miss was not measured and is not charged, so the saving is an upper bound.")
    if costs.cold_is_a_miss:
        assumptions.append(
            f"{COLD_IS_A_MISS} The connector's overhead is in both arms and therefore not charged: compare the run "
            "with a stock one (assert-result-gates --stock-result)."
        )
    if costs.capture_shares:
        assumptions.append(
            f"{percent(options.capture_rate)} of misses also pay for a capture ({len(costs.capture_shares)} measured)."
        )
    else:
        assumptions.append(
            "The cost of a capture was not measured and is not charged, so the saving is an upper bound."
        )
    for name, shares in (("miss", costs.miss_shares), ("capture", costs.capture_shares)):
        if shares and fmean(shares) < 0:
            assumptions.append(
                f"A {name} measured {percent(-fmean(shares))} faster than without. This is noise and counts as 0."
            )
    if found.extrapolated_share:
        assumptions.append(
            f"EXTRAPOLATED: {percent(found.extrapolated_share)} of the requests are outside the measured lengths; "
            "longer ones use the times of the longest measured, shorter ones times in proportion."
        )
    if found.never_pays_share:
        assumptions.append(f"In {percent(found.never_pays_share)} of the samples reuse was not faster than cold.")
    return assumptions


def tables(found: RoiEstimate, rate: ReuseRate, assumptions: list[str]) -> tuple[Table, Table]:
    between = f" [{percent(rate.low)}, {percent(rate.high)}]" if rate.low is not None else ""
    break_even = NOT_MEASURED if found.break_even_rate is None else _band(found.break_even_rate, percent)
    rows = (
        ("reuse rate", percent(rate.value) + between),
        ("expected saving per request", _band(found.saving_ms, milliseconds)),
        ("as fraction of cold TTFT", _band(found.saving_share, percent)),
        ("break-even reuse rate", "never: reuse is not faster" if found.break_even_rate is None else break_even),
        ("probability of any saving", percent(found.probability_of_saving)),
    )
    whole = Table("Expected saving", ("figure", "value [95 %]"), rows)
    columns = ("prompt tokens", "requests", "cold", "warm if reused", "miss", "capture", "saving [95 %]")
    buckets = tuple(_bucket(bucket) for bucket in found.buckets)
    short = ("prompt tokens", "requests", "saving [95 %]")
    return whole, Table("By length", columns, buckets, tuple(assumptions), short)


def _band(band: Band, form: Any) -> str:
    return f"{form(band.value)} [{form(band.low)}, {form(band.high)}]"


def _bucket(bucket: BucketEstimate) -> tuple[str, ...]:
    mark = " *" if bucket.extrapolated else ""
    return (
        f"{bucket.low:,} to {bucket.high - 1:,}{mark}",
        f"{bucket.requests:,.0f}",
        milliseconds(bucket.cold_ms.value),
        milliseconds(bucket.warm_ms.value),
        NOT_MEASURED if bucket.miss_ms is None else milliseconds(bucket.miss_ms.value),
        NOT_MEASURED if bucket.capture_ms is None else milliseconds(bucket.capture_ms.value),
        _band(bucket.saving_ms, milliseconds),
    )
