"""How figures are formatted. A missing value is marked; a value that is not zero never reads as zero."""

from __future__ import annotations

from typing import Final

from sembase.onepage.formats import MINUS, NOT_MEASURED, signed

TIMES: Final = "\N{MULTIPLICATION SIGN}"


def percent(value: float | None) -> str:
    if value is None:
        return NOT_MEASURED
    if 0 < abs(value) < 0.0005:
        return "< 0.1 %" if value > 0 else f"> {MINUS}0.1 %"
    shown = round(100 * value, 1) + 0.0
    return signed(f"{shown:.0f} %" if shown in (0.0, 100.0) else f"{shown:.1f} %")


def points(value: float | None) -> str:
    """A difference of two shares, in percentage points, always with its sign."""
    return NOT_MEASURED if value is None else signed(f"{100 * value:+.1f} pp")


def milliseconds(value: float | None) -> str:
    if value is None:
        return NOT_MEASURED
    size = abs(value)
    if size >= 10_000:
        return signed(f"{value / 1000:,.1f} s")
    digits = 0 if size >= 100 else 1 if size >= 10 else 2
    return signed(f"{value:,.{digits}f} ms")


def ratio(value: float | None) -> str:
    if value is None:
        return NOT_MEASURED
    return f"{value:,.1f}{TIMES}" if value >= 10 else f"{value:.2f}{TIMES}"


def nats(value: float | None) -> str:
    if value is None:
        return NOT_MEASURED
    return "0" if value == 0 else _power(value) if value < 0.001 else f"{value:.3f}"


def score(value: float | None) -> str:
    return NOT_MEASURED if value is None else f"{value:.3f}"


def plain(value: object) -> str:
    """Any scalar of a configuration, as it is."""
    if value is None:
        return NOT_MEASURED
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}" if abs(value) >= 10_000 else str(value)
    if isinstance(value, float):
        return f"{value:.6g}"
    return str(value)


def shortened(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1].rstrip() + "…"


def tick_ratio(value: float) -> str:
    return f"{value:g}{TIMES}"


def tick_nats(value: float) -> str:
    return f"{value:g}" if value >= 0.001 else _power(value)


def tick_share(value: float) -> str:
    return f"{100 * value:g} %"


def _power(value: float) -> str:
    """2.1e-5, not 2.1e-05 nor 0.000021."""
    mantissa, exponent = f"{value:.1e}".split("e")
    return signed(f"{float(mantissa):g}e{int(exponent)}")
