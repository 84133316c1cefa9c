"""Near-identical documents with other entities and numbers: what is copied is equal token by token, the rest never is.

Texts are put together from pieces tokenized on their own, so that the places of the entities are known as token ranges.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from tests.engines.vllm.connector.client import Ask, Reply
from tests.engines.vllm.connector.connector_server import ConnectorServer
from tests.engines.vllm.connector.kinds import MAIN
from tests.engines.vllm.connector.prompts import Texts, opening

pytestmark = [
    pytest.mark.engine,
    pytest.mark.slow,
    pytest.mark.parametrize("server", [MAIN], indirect=True),
]

PASSAGE_TOKENS = 150
ACME = ("Acme Harbour Ltd", "Maria Lindqvist", "14 March 2019", "48,250 euros", "Rotterdam", "clause 17(b)")
BOREAL = ("Boreal Freight SA", "Tomas Okafor", "2 November 2023", "913,000 euros", "Valparaiso", "clause 4(f)")
CITRON = ("Citron Mining plc", "Aiko Brandt", "30 June 2011", "7 euros", "Nairobi", "clause 99")


@dataclass(frozen=True, slots=True)
class Document:
    """``entities`` are the token ranges of the places that differ between the documents."""

    tokens: list[int]
    entities: list[range]

    def swapped(self, *others: Document) -> set[int]:
        """Positions inside an entity that none of the others has there; what they share at its ends is not swapped."""
        found: set[int] = set()
        for number, mine in enumerate(self.entities):
            here = [self.tokens[i] for i in mine]
            pairs = [(here, [other.tokens[i] for i in other.entities[number]]) for other in others]
            head = max(common(a, b) for a, b in pairs)
            tail = max(common(a[::-1], b[::-1]) for a, b in pairs)
            found |= set(mine[head : len(mine) - tail])
        return found


def common(one: Sequence[int], other: Sequence[int]) -> int:
    """How many tokens two sequences begin with together."""
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def write(texts: Texts, entities: Sequence[str], beginning: str = "") -> Document:
    tokens = texts.encode(beginning) if beginning else []
    places = []
    for number, entity in enumerate(entities):
        tokens += texts.passage(number * PASSAGE_TOKENS, PASSAGE_TOKENS)
        tokens += texts.encode("\nThe contract names")
        start = len(tokens)
        tokens += texts.encode(f" {entity}")
        places.append(range(start, len(tokens)))
        tokens += texts.encode(" in this place, and nothing else.\n")
    return Document(tokens, places)


def check(reply: Reply, recipient: Document, donors: dict[str, Document]) -> int:
    """Copied tokens, after every run was held against the donor it names."""
    copied = 0
    assert reply.semblend["runs_omitted"] == 0
    for run in reply.semblend["runs"]:
        donor = donors[run["donor_id"]]
        there = donor.tokens[run["donor_start"] : run["donor_start"] + run["length"]]
        here = recipient.tokens[run["target_start"] : run["target_start"] + run["length"]]
        assert len(here) == run["length"]
        assert there == here
        copied += run["length"]
    assert copied == reply.loaded_tokens
    assert reply.kept_tokens == reply.reused_tokens
    return copied


def positions(reply: Reply) -> set[int]:
    return {
        position
        for run in reply.semblend["runs"]
        for position in range(run["target_start"], run["target_start"] + run["length"])
    }


@pytest.mark.parametrize("beginning", ["", opening(11)], ids=["same place", "moved"])
def test_swapped_entities_are_never_copied(server: ConnectorServer, texts: Texts, beginning: str) -> None:
    salt, client = f"entities-{len(beginning)}", server.client
    donor = write(texts, ACME)
    donor_id = server.wait_for_donor(client.ask(Ask(donor.tokens, salt=salt)))
    recipient = write(texts, BOREAL, beginning)
    reply = client.ask(Ask(recipient.tokens, salt=salt, capture=False))
    assert reply.outcome == "backend_materialized_reuse"
    assert check(reply, recipient, {donor_id: donor}) > len(recipient.tokens) // 3
    swapped = recipient.swapped(donor)
    assert len(swapped) >= 2 * len(BOREAL)
    assert reply.semblend["exact_prefix_tokens"] <= min(swapped)
    assert not positions(reply) & swapped


def test_with_two_donors_each_entity_comes_from_the_document_that_has_it(server: ConnectorServer, texts: Texts) -> None:
    salt, client = "entities-two", server.client
    donors = {}
    for entities in (ACME, BOREAL):
        document = write(texts, entities)
        reply = client.ask(Ask(document.tokens, salt=salt, reuse=False, capture=True))
        donors[server.wait_for_donor(reply)] = document
    mixed = write(texts, [*ACME[:2], *BOREAL[2:4], *CITRON[4:]], opening(12))
    reply = client.ask(Ask(mixed.tokens, salt=salt, capture=False))
    assert reply.outcome == "backend_materialized_reuse"
    assert check(reply, mixed, donors) > len(mixed.tokens) // 3
    of_neither = mixed.swapped(*donors.values())
    assert len(of_neither) >= len(CITRON[4:])
    assert not positions(reply) & of_neither
