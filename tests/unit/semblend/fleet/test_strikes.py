"""Strikes: counted per writer, ended by time, bounded."""

from __future__ import annotations

from semblend.fleet.strikes import BAR_SECONDS, MAX_STRIKES, MAX_WRITERS, Strikes


def test_only_a_writer_with_enough_strikes_is_barred_and_not_for_ever() -> None:
    now = [0.0]
    strikes = Strikes(lambda: now[0])
    for _ in range(MAX_STRIKES):
        assert not strikes.is_barred(b"one")
        strikes.strike(b"one")
    assert strikes.is_barred(b"one")
    assert not strikes.is_barred(b"other")
    now[0] = BAR_SECONDS + 1
    assert not strikes.is_barred(b"one")
    strikes.strike(b"one")
    assert not strikes.is_barred(b"one"), "old strikes do not count"


def test_the_memory_of_writers_is_bounded() -> None:
    strikes = Strikes(lambda: 0.0)
    for _ in range(MAX_STRIKES):
        strikes.strike(b"first")
    for number in range(MAX_WRITERS):
        strikes.strike(number.to_bytes(16, "little"))
    assert not strikes.is_barred(b"first")
