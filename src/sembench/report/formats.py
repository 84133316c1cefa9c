"""How figures are written. What was not measured says so; what is not zero never reads like zero."""

from __future__ import annotations

from typing import Final

NOT_MEASURED: Final = "not measured"
MINUS: Final = "\N{MINUS SIGN}"
TIMES: Final = "\N{MULTIPLICATION SIGN}"
TO: Final = "\N{EN DASH}"


def percent(value: float | None) -> str:
    if value is None:
        return NOT_MEASURED
    if 0 < abs(value) < 0.0005:
        return "< 0.1 %" if value > 0 else f"> {MINUS}0.1 %"
    shown = round(100 * value, 1) + 0.0
    return _signed(f"{shown:.0f} %" if shown in (0.0, 100.0) else f"{shown:.1f} %")


def points(value: float | None) -> str:
    """A difference of two shares, in percentage points, always with its sign."""
    return NOT_MEASURED if value is None else _signed(f"{100 * value:+.1f} pp")


def milliseconds(value: float | None) -> str:
    if value is None:
        return NOT_MEASURED
    size = abs(value)
    if size >= 10_000:
        return _signed(f"{value / 1000:,.1f} s")
    digits = 0 if size >= 100 else 1 if size >= 10 else 2
    return _signed(f"{value:,.{digits}f} ms")


def ratio(value: float | None) -> str:
    if value is None:
        return NOT_MEASURED
    return f"{value:,.1f}{TIMES}" if value >= 10 else f"{value:.2f}{TIMES}"


def count(value: float | None) -> str:
    return NOT_MEASURED if value is None else f"{value:,.0f}"


def nats(value: float | None) -> str:
    if value is None:
        return NOT_MEASURED
    return "0" if value == 0 else _power(value) if value < 0.001 else f"{value:.3f}"


def score(value: float | None) -> str:
    return NOT_MEASURED if value is None else f"{value:.3f}"


def fraction(numerator: float | None, denominator: float | None) -> str:
    if numerator is None or denominator is None:
        return NOT_MEASURED
    return f"{numerator:,.0f} / {denominator:,.0f}"


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


def plural(number: int, one: str, many: str | None = None) -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def shortened(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1].rstrip() + "…"


def tick_ms(value: float) -> str:
    if value == 0:
        return "0"
    return _signed(f"{value / 1000:g} s" if abs(value) >= 1000 else f"{value:g} ms")


def tick_ratio(value: float) -> str:
    return f"{value:g}{TIMES}"


def tick_nats(value: float) -> str:
    return f"{value:g}" if value >= 0.001 else _power(value)


def tick_share(value: float) -> str:
    return f"{100 * value:g} %"


def _power(value: float) -> str:
    """2.1e-5, not 2.1e-05 nor 0.000021."""
    mantissa, exponent = f"{value:.1e}".split("e")
    return _signed(f"{float(mantissa):g}e{int(exponent)}")


def _signed(text: str) -> str:
    return text.replace("-", MINUS)
