"""How figures are written. What was not measured says so; what is not zero never reads like zero."""

from __future__ import annotations

from typing import Final

NOT_MEASURED: Final = "not measured"
MINUS: Final = "\N{MINUS SIGN}"
TO: Final = "\N{EN DASH}"


def percent(value: float | None, digits: int = 1) -> str:
    if value is None:
        return NOT_MEASURED
    if 0 < abs(value) < 0.5 * 10 ** (-digits - 2):
        least = f"{10**-digits:g} %"
        return f"< {least}" if value > 0 else f"> {MINUS}{least}"
    return _signed(f"{100 * value + 0.0:.{digits}f} %")


def change(value: float | None, digits: int = 1) -> str:
    """A relative change, always with its sign."""
    return NOT_MEASURED if value is None else _signed(f"{100 * value:+.{digits}f} %")


def points(value: float | None, digits: int = 2) -> str:
    """A difference of two shares, in percentage points, always with its sign."""
    return NOT_MEASURED if value is None else _signed(f"{100 * value:+.{digits}f} pp")


def milliseconds(value: float | None) -> str:
    if value is None:
        return NOT_MEASURED
    size = abs(value)
    digits = 0 if size >= 10_000 else 1 if size >= 1_000 else 2
    return _signed(f"{value:,.{digits}f} ms")


def count(value: float | None) -> str:
    return NOT_MEASURED if value is None else f"{value:,.0f}"


def fraction(numerator: float | None, denominator: float | None) -> str:
    if numerator is None or denominator is None:
        return NOT_MEASURED
    return f"{numerator:,.0f} / {denominator:,.0f}"


def interval(bounds: tuple[float, float] | None, digits: int = 1) -> str:
    if bounds is None:
        return NOT_MEASURED
    return f"{100 * bounds[0]:.{digits}f} {TO} {100 * bounds[1]:.{digits}f} %".replace("-", MINUS)


def plural(number: int, one: str, many: str | None = None) -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def tick_ms(value: float) -> str:
    return "0" if value == 0 else _signed(f"{value / 1000:g} s" if abs(value) >= 1000 else f"{value:g} ms")


def tick_share(value: float) -> str:
    return _signed(f"{100 * value:g} %")


def tick_count(value: float) -> str:
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "K")):
        if abs(value) >= size:
            return _signed(f"{value / size:g}{letter}")
    return _signed(f"{value:g}")


def seconds(value: float) -> str:
    return f"{value:.0f} s" if value >= 100 else f"{value:.1f} s" if value >= 1 else f"{1000 * value:.0f} ms"


def _signed(text: str) -> str:
    return text.replace("-", MINUS)
