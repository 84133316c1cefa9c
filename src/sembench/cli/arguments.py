"""Argument types with messages that say what is wrong with the value."""

from __future__ import annotations

import argparse


def positive_int(text: str) -> int:
    value = _whole(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is not at least 1")
    return value


def count(text: str) -> int:
    value = _whole(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"{value} is negative")
    return value


def share(text: str) -> float:
    value = number(text)
    if not 0.0 <= value <= 1.0:
        raise argparse.ArgumentTypeError(f"{text} does not lie between 0 and 1")
    return value


def positive_share(text: str) -> float:
    value = share(text)
    if value == 0:
        raise argparse.ArgumentTypeError(f"{text} is not more than 0: every answer would pass")
    return value


def positive_number(text: str) -> float:
    value = number(text)
    if value == 0:
        raise argparse.ArgumentTypeError(f"{text} is not more than 0")
    return value


def number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number") from None
    if not 0.0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not a finite number of at least 0")
    return value


def header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not name.strip():
        raise argparse.ArgumentTypeError(f"'{name}' is not of the form 'Name: value'")
    return name.strip(), value.strip()


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number") from None
