"""How figures are formatted. A missing value is marked; a value that is not zero never reads as zero."""

from __future__ import annotations

from sembase.onepage.formats import MINUS, NOT_MEASURED, TO, signed


def percent(value: float | None, digits: int = 1) -> str:
    if value is None:
        return NOT_MEASURED
    if 0 < abs(value) < 0.5 * 10 ** (-digits - 2):
        least = f"{10**-digits:g} %"
        return f"< {least}" if value > 0 else f"> {MINUS}{least}"
    return signed(f"{100 * value + 0.0:.{digits}f} %")


def change(value: float | None, digits: int = 1) -> str:
    """A relative change, always signed."""
    return NOT_MEASURED if value is None else signed(f"{100 * value:+.{digits}f} %")


def points(value: float | None, digits: int = 2) -> str:
    """A difference of two fractions in percentage points, always signed."""
    return NOT_MEASURED if value is None else signed(f"{100 * value:+.{digits}f} pp")


def milliseconds(value: float | None) -> str:
    if value is None:
        return NOT_MEASURED
    size = abs(value)
    digits = 0 if size >= 10_000 else 1 if size >= 1_000 else 2
    return signed(f"{value:,.{digits}f} ms")


def interval(bounds: tuple[float, float] | None, digits: int = 1) -> str:
    if bounds is None:
        return NOT_MEASURED
    return f"{100 * bounds[0]:.{digits}f} {TO} {100 * bounds[1]:.{digits}f} %".replace("-", MINUS)


def tick_share(value: float) -> str:
    return signed(f"{100 * value:g} %")


def tick_count(value: float) -> str:
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "K")):
        if abs(value) >= size:
            return signed(f"{value / size:g}{letter}")
    return signed(f"{value:g}")


def seconds(value: float) -> str:
    return f"{value:.0f} s" if value >= 100 else f"{value:.1f} s" if value >= 1 else f"{1000 * value:.0f} ms"
