"""A promise that the engine's own tiers overtake between look-up and admission."""

from __future__ import annotations

import numpy as np
from tests.unit.semblend.integration.sglang.desks import Office, words

DOCUMENT = words(1, 800)
PROMPT = np.concatenate([words(2, 50), DOCUMENT, words(3, 40)])


def promised(office: Office) -> int:
    office.serve_cold("donor", np.concatenate([words(9, 30), DOCUMENT, words(8, 20)]))
    return office.ask("r", PROMPT)


def test_a_longer_exact_match_takes_the_promise_back_and_its_loss_brings_it_again() -> None:
    office = Office()
    tokens = promised(office)
    assert tokens > 0
    office.desk.overtaken("r")
    assert office.record("r").plan is None
    assert office.desk.publishable("r", 890) == 890, "what the engine loads itself is exact"
    assert office.ask("r", PROMPT) == tokens


def test_what_is_loaded_stays_accounted_for() -> None:
    office = Office()
    promised(office)
    record = office.record("r")
    office.desk.loaded(record)
    office.desk.overtaken("r")
    assert record.plan is not None
    office.desk.confirmed(record, 1.0, 1.0, recomputed=False)
    assert office.desk.publishable("r", 890) == record.exact_tokens < 890


def test_strangers_are_nobodys_business() -> None:
    office = Office()
    office.desk.overtaken("unknown")
    assert office.desk.known("unknown") is None
