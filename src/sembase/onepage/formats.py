"""How numbers are written on the page. A value that was not measured is shown as such."""

from __future__ import annotations

from typing import Final

NOT_MEASURED: Final = "not measured"
MINUS: Final = "\N{MINUS SIGN}"
TO: Final = "\N{EN DASH}"


def signed(text: str) -> str:
    return text.replace("-", MINUS)


def count(value: float | None) -> str:
    return NOT_MEASURED if value is None else f"{value:,.0f}"


def fraction(numerator: float | None, denominator: float | None) -> str:
    if numerator is None or denominator is None:
        return NOT_MEASURED
    return f"{numerator:,.0f} / {denominator:,.0f}"


def plural(number: int, one: str, many: str | None = None) -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def tick_ms(value: float) -> str:
    if value == 0:
        return "0"
    return signed(f"{value / 1000:g} s" if abs(value) >= 1000 else f"{value:g} ms")
